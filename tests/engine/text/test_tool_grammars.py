"""Grammars of tool calls: whatever they allow is read as calls whose arguments follow the schemas."""

import codecs
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import fill_next_token_bitmask

from engine.errors import InvalidRequest
from engine.sampling_params import ToolCallSyntax, ToolFormat
from engine.text.tool_calls.calling import ToolRequest
from engine.text.tool_calls.detection import marks_of
from engine.text.tool_calls.grammars import TRIGGERS, SpecialId, free_grammar
from engine.text.tool_calls.parser import ToolCallParser
from tests.engine.text.tool_formats import FORMATS

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 6},
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "deep": {"$ref": "#/$defs/Deep"},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {
        "Deep": {
            "type": "object",
            "properties": {"x": {"type": ["boolean", "null"]}},
            "required": ["x"],
            "additionalProperties": False,
        }
    },
}
OPTIONS = {
    "type": "object",
    "properties": {
        "a": {"type": "boolean"},
        "b": {"enum": [1, 2]},
        "c": {"const": "u v"},
    },
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {"get_weather": WEATHER, "options": OPTIONS, "now": {"maxProperties": 0}}


def tool(name: str, parameters: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    given = {"parameters": parameters} if parameters else {}
    return {"type": "function", "function": {"name": name, **given, **fields}}


TOOLS = [tool("get_weather", WEATHER), tool("options", OPTIONS), tool("now")]
REQUESTS = {
    "required": ToolRequest(TOOLS, "required"),
    "single": ToolRequest(TOOLS, "required", is_parallel=False),
    "named": ToolRequest(TOOLS, named="options"),
}


class ByteTokens:
    """A token for each byte, then the special tokens, then the end."""

    bos_token_id = None

    def __init__(self, special: Sequence[str]) -> None:
        self.tokens = [*(bytes([byte]) for byte in range(256)), *map(str.encode, special), b"</end>"]
        self.special_token_ids = list(range(256, len(self.tokens)))
        self.eos_token_id = len(self.tokens) - 1

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


def matcher_of(source: ByteTokens, grammar: str) -> LLMatcher:
    tokenizer = LLTokenizer(TokenizerWrapper(source), n_vocab=len(source.tokens))
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar))
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def drawn(
    tool_format: ToolFormat,
    request: ToolRequest,
    random_: random.Random,
    grammar: Callable[[SpecialId], str],
    begun: Sequence[str] = (),
) -> tuple[str, list[tuple[str, str]]]:
    """Text and calls of a random output of the grammar, up to where it may end. begun: its beginning, text and special
    tokens."""
    special = marks_of(tool_format)
    source = ByteTokens(special)
    matcher = matcher_of(source, grammar(lambda text: 256 + special.index(text) if text in special else None))
    mask = np.zeros((1, -(-len(source.tokens) // 32)), np.int32)
    parser = ToolCallParser(ToolCallSyntax(tool_format, request.functions, marks=special, is_single=request.is_single))
    decoder = codecs.getincrementaldecoder("utf-8")()
    said = []
    for piece in begun:
        assert matcher.consume_tokens([256 + special.index(piece)] if piece in special else source(piece))
        said += parser.push(piece)
    while not parser.is_done:
        fill_next_token_bitmask(matcher, mask)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(source.tokens)])
        shown = [int(token) for token in allowed if 32 <= token < 127 or token >= 256]
        token = random_.choice(shown or [int(token) for token in allowed])
        if source.eos_token_id in allowed:
            break
        matcher.consume_token(token)
        said += parser.push(decoder.decode(source.tokens[token]))
    said += parser.flush()
    calls: dict[int, list[str]] = {}
    for delta in (delta for part in said for delta in part.tool_calls):
        call = calls.setdefault(delta.index, [delta.name or "", ""])
        call[1] += delta.arguments
    text = "".join(part.text for part in said)
    return text, [(name, arguments) for name, arguments in calls.values()]


@pytest.mark.parametrize("tool_format", sorted(FORMATS))
@pytest.mark.parametrize("wish", REQUESTS)
def test_forced_outputs_are_calls_with_valid_arguments(tool_format: ToolFormat, wish: str) -> None:
    random_, request = random.Random(wish), REQUESTS[wish]
    for _ in range(2):
        text, calls = drawn(tool_format, request, random_, lambda special_id: request.grammar(tool_format, special_id))
        assert calls
        assert text == ""
        assert wish == "required" or len(calls) == 1
        for name, arguments in calls:
            assert wish != "named" or name == "options"
            jsonschema.validate(json.loads(arguments), SCHEMAS[name])


STRICT = ToolRequest([tool("get_weather", WEATHER, strict=True), tool("options", OPTIONS, strict=True)])


@pytest.mark.parametrize("tool_format", sorted(FORMATS))
def test_calls_of_strict_functions_follow_their_schemas_in_free_outputs(tool_format: ToolFormat) -> None:
    def grammar(special_id: SpecialId) -> str:
        found = free_grammar(tool_format, STRICT.functions, special_id)
        assert found is not None
        return found

    if tool_format not in TRIGGERS:
        assert free_grammar(tool_format, STRICT.functions, lambda text: None) is None
        return
    random_ = random.Random(tool_format)
    assert drawn(tool_format, STRICT, random_, grammar, ("It rains <", "b>")) == ("It rains <b>", [])
    text, calls = drawn(tool_format, STRICT, random_, grammar, ("Look.", TRIGGERS[tool_format]))
    assert text == "Look."
    assert calls
    for name, arguments in calls:
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])


def test_functions_that_are_not_strict_are_called_with_any_object() -> None:
    functions = ToolRequest([tool("options", OPTIONS, strict=True), tool("now", OPTIONS)]).functions
    grammar = free_grammar("hermes", functions, lambda text: None)
    assert grammar is not None
    source = ByteTokens(())
    for name, is_allowed in (("now", True), ("options", False)):
        call = f'<tool_call>\n{{"name": "{name}", "arguments": {{"z": 1}}}}\n</tool_call>'
        assert (matcher_of(source, grammar).validate_tokens(source(call)) == len(call)) == is_allowed
    assert free_grammar("qwen3_xml", functions, lambda text: None) is None


@pytest.mark.parametrize("tool_format", ["pythonic", "qwen3_xml"])
def test_schemas_that_a_format_cannot_follow_are_refused(tool_format: ToolFormat) -> None:
    for schema in (
        {"type": "object", "properties": {}, "minProperties": 1},
        {"type": "object", "properties": {}, "required": ["a"]},
    ):
        with pytest.raises(InvalidRequest, match="cannot be forced"):
            ToolRequest([tool("f", schema)], "required").grammar(tool_format, lambda text: None)


def test_contradicting_requests_are_refused() -> None:
    for changes, param in (
        ({"tools": [*TOOLS, tool("now")]}, "tools"),
        ({"tools": TOOLS, "named": "other"}, "tool_choice"),
        ({"choice": "required"}, "tool_choice"),
        ({"tools": [tool("f", {"type": "string"})]}, "tools"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            ToolRequest(**changes)
        assert refused.value.param == param
