"""Grammars of tool calls: whatever they allow is read as calls whose arguments follow the schemas."""

import codecs
import json
import random
from collections.abc import Sequence
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


def tool(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **({"parameters": parameters} if parameters else {})}}


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


def drawn(tool_format: ToolFormat, request: ToolRequest, random_: random.Random) -> list[tuple[str, str]]:
    """The calls of a random output of the grammar; fails if it is anything else."""
    special = marks_of(tool_format)
    source = ByteTokens(special)
    tokenizer = LLTokenizer(TokenizerWrapper(source), n_vocab=len(source.tokens))
    grammar = request.grammar(tool_format, lambda text: 256 + special.index(text) if text in special else None)
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar))
    assert not matcher.is_error(), matcher.get_error()
    mask = np.zeros((1, -(-len(source.tokens) // 32)), np.int32)
    parser = ToolCallParser(ToolCallSyntax(tool_format, request.functions, marks=special, is_single=request.is_single))
    decoder = codecs.getincrementaldecoder("utf-8")()
    said = []
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
    assert "".join(part.text for part in said) == ""
    calls: dict[int, list[str]] = {}
    for delta in (delta for part in said for delta in part.tool_calls):
        call = calls.setdefault(delta.index, [delta.name or "", ""])
        call[1] += delta.arguments
    return [(name, arguments) for name, arguments in calls.values()]


@pytest.mark.parametrize("tool_format", sorted(FORMATS))
@pytest.mark.parametrize("wish", REQUESTS)
def test_forced_outputs_are_calls_with_valid_arguments(tool_format: ToolFormat, wish: str) -> None:
    random_ = random.Random(wish)
    for _ in range(2):
        calls = drawn(tool_format, REQUESTS[wish], random_)
        assert calls
        assert wish == "required" or len(calls) == 1
        for name, arguments in calls:
            assert wish != "named" or name == "options"
            jsonschema.validate(json.loads(arguments), SCHEMAS[name])


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
