"""The tables of docs/api-fields.md are true and complete: every field of every table is sent, and every field of the
installed SDKs and of vLLM is in them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

from docs import api_fields_page
from docs.api_fields_page import SECTIONS, Section
from tests.wire import served_values as values
from tests.wire.served_values import Values
from wire import tools
from wire.anthropic import blocks, context_edits
from wire.anthropic import requests as anthropic
from wire.errors import ApiError
from wire.openai import fields, structured
from wire.openai.embeddings import EmbeddingRequest
from wire.openai.messages import RequestMessage
from wire.openai.requests import ChatCompletionRequest, CompletionRequest, StreamOptions
from wire.openai.tokens import TokenizeRequest
from wire.openai.tolerance import Accepted, Known, Notes, Refused, Tolerant, names_of
from wire.responses import items
from wire.responses import requests as responses
from wire.responses import tools as responses_tools
from wire.strict_json import parse_model

CALL = {"model": "finch", "messages": [{"role": "user", "content": "Hello"}]}
TEXT = {"model": "finch", "prompt": "Hello"}
INPUT = {"model": "finch", "input": "Hello"}
MESSAGES = {**CALL, "max_tokens": 9}
ADD = {"name": "add", "input_schema": {}}
FUNCTION = {"type": "function", "function": {"name": "add"}}
CALLED = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add"}}]}


@dataclass(frozen=True)
class Place:
    """An object in a request: the request's model, a body without the field, the keys that lead to the object, the
    object's model (none where the wire reads it without one), a value of each served field, what the object must have
    besides for some, and the table of an object without a model."""

    request: type[Tolerant]
    body: Values
    path: tuple[str | int, ...]
    model: type[Tolerant] | None
    served: Values = field(default_factory=dict)
    companions: Mapping[str, Values] = field(default_factory=dict)
    read_plainly: Mapping[str, Known] = field(default_factory=dict)

    @property
    def known(self) -> Mapping[str, Known]:
        """The fields that are not served."""
        known = self.model.known if self.model is not None else self.read_plainly
        return {name: entry for name, entry in known.items() if name not in self.names}

    @property
    def names(self) -> dict[str, str]:
        """Attributes of the served fields by the names on the wire."""
        found = self.model.model_fields if self.model is not None else {}
        return {info.alias or attribute: attribute for attribute, info in found.items()}

    def named(self, name: str) -> str:
        """How an error names a field of the object."""
        return ".".join(map(str, (*self.path, name)))

    def parsed(self, notes: Notes | None = None, **changes: Any) -> Tolerant:
        """The request whose object has these fields, too."""
        sent = json.loads(json.dumps(self.body))
        at = sent
        for key in self.path:
            at = at[key]
        at.update(changes)
        found: Tolerant = parse_model(self.request, json.dumps(sent).encode(), notes)
        return found

    def object_of(self, request: Any) -> Any:
        """The object in a parsed request."""
        for key in self.path:
            request = request[key] if isinstance(key, int) else getattr(request, key)
        return request


def whole(request: type[Tolerant], body: Values, served: Values, companions: Any = None) -> Place:
    return Place(request, body, (), request, served, companions or {})


def chat(path: tuple[str | int, ...], model: type[Tolerant] | None, served: Values, **body: Any) -> Place:
    return Place(ChatCompletionRequest, {**CALL, **body}, path, model, served)


def response(path: tuple[str | int, ...], model: type[Tolerant], served: Values, **body: Any) -> Place:
    return Place(responses.ResponsesRequest, {**INPUT, **body}, path, model, served)


def item(model: type[Tolerant], served: Values, body: Values) -> Place:
    return response(("input", 0), model, served, input=[body])


def part(model: type[Tolerant], served: Values, body: Values) -> Place:
    return response(("input", 0, "content", 0), model, served, input=[{"role": "assistant", "content": [body]}])


def message(path: tuple[str | int, ...], model: type[Tolerant], served: Values, **body: Any) -> Place:
    return Place(anthropic.MessagesRequest, {**MESSAGES, **body}, path, model, served)


def block(role: str, model: type[Tolerant], served: Values, body: Values) -> Place:
    return message(("messages", 0, "content", 0), model, served, messages=[{"role": role, "content": [body]}])


def edit(model: type[Tolerant], served: Values, kind: str) -> Place:
    path = ("context_management", "edits", 0)
    return message(path, model, served, context_management={"edits": [{"type": kind}]})


TEXT_PART = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
PLACES = (
    whole(ChatCompletionRequest, CALL, values.CHAT, values.CHAT_COMPANIONS),
    Place(
        ChatCompletionRequest,
        CALL,
        ("messages", 0),
        RequestMessage,
        values.MESSAGE,
        values.MESSAGE_COMPANIONS,
    ),
    Place(
        ChatCompletionRequest,
        {**CALL, "messages": [TEXT_PART]},
        ("messages", 0, "content", 0),
        None,
        read_plainly=fields.PART,
    ),
    chat(("tools", 0), tools.ToolDefinition, values.TOOL, tools=[FUNCTION]),
    chat(("tools", 0, "function"), tools.FunctionDefinition, values.FUNCTION, tools=[FUNCTION]),
    chat(("messages", 0, "tool_calls", 0), tools.ToolCall, values.TOOL_CALL, messages=[CALLED]),
    chat(("messages", 0, "tool_calls", 0, "function"), tools.CalledFunction, values.CALLED_FUNCTION, messages=[CALLED]),
    chat(("tool_choice",), tools.NamedToolChoice, values.NAMED_CHOICE, tools=values.TWO_TOOLS, tool_choice=FUNCTION),
    chat(
        ("tool_choice",),
        tools.AllowedToolsChoice,
        values.ALLOWED_CHOICE,
        tools=values.TWO_TOOLS,
        tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}},
    ),
    chat(
        ("tool_choice", "allowed_tools"),
        tools.AllowedTools,
        values.ALLOWED_TOOLS,
        tools=values.TWO_TOOLS,
        tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}},
    ),
    chat(
        ("response_format",),
        structured.ResponseFormat,
        values.RESPONSE_FORMAT,
        response_format={"type": "json_schema", "json_schema": {"schema": {}}},
    ),
    chat(
        ("response_format", "json_schema"),
        structured.JsonSchemaFormat,
        values.JSON_SCHEMA,
        response_format={"type": "json_schema", "json_schema": {"schema": {}}},
    ),
    chat(
        ("stream_options",), StreamOptions, values.STREAM_OPTIONS, stream=True, stream_options={"include_usage": True}
    ),
    Place(
        CompletionRequest,
        {**TEXT, "structured_outputs": {"regex": None}},
        ("structured_outputs",),
        structured.StructuredOutputs,
        values.STRUCTURED_OUTPUTS,
    ),
    whole(CompletionRequest, TEXT, values.COMPLETIONS, values.CHAT_COMPANIONS),
    whole(TokenizeRequest, TEXT, values.TOKENIZE, values.TOKENIZE_COMPANIONS),
    whole(EmbeddingRequest, INPUT, values.EMBEDDINGS),
    whole(responses.ResponsesRequest, INPUT, values.RESPONSES),
    response(
        ("tools", 0), responses_tools.FunctionTool, values.RESPONSES_TOOL, tools=[{"type": "function", "name": "add"}]
    ),
    response(("tools", 0), responses_tools.NamespaceTool, values.NAMESPACE, tools=[{"type": "namespace", "name": "n"}]),
    response(
        ("tool_choice",), responses.FunctionChoice, values.CHOICE, tool_choice={"type": "function", "name": "add"}
    ),
    response(
        ("tool_choice",),
        responses.AllowedTools,
        values.ALLOWED,
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]},
    ),
    response(("text",), responses.TextOptions, values.TEXT, text={"format": {"type": "text"}}),
    response(("text", "format"), responses.PlainFormat, values.PLAIN_FORMAT, text={"format": {"type": "text"}}),
    response(
        ("text", "format"),
        responses.SchemaFormat,
        values.SCHEMA_FORMAT,
        text={"format": {"type": "json_schema", "name": "a", "schema": {}}},
    ),
    response(("reasoning",), responses.Reasoning, values.REASONING, reasoning={"effort": "high"}),
    response(
        ("stream_options",), responses.StreamOptions, {}, stream=True, stream_options={"include_obfuscation": False}
    ),
    item(items.MessageItem, values.ITEM_MESSAGE, {"role": "user", "content": "Hello"}),
    item(
        items.FunctionCallItem,
        values.ITEM_CALL,
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
    ),
    item(
        items.FunctionOutputItem,
        values.ITEM_OUTPUT,
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
    ),
    item(items.ReasoningItem, values.ITEM_REASONING, {"type": "reasoning"}),
    part(items.TextPart, values.PART_TEXT, {"type": "input_text", "text": "Hello"}),
    part(items.RefusalPart, values.PART_REFUSAL, {"type": "refusal", "refusal": "no"}),
    whole(anthropic.MessagesRequest, MESSAGES, values.MESSAGES),
    whole(anthropic.CountTokensRequest, CALL, values.CONVERSATION),
    message(("messages", 0), anthropic.MessageParam, values.ANTHROPIC_MESSAGE),
    message(("tools", 0), anthropic.Tool, values.ANTHROPIC_TOOL, tools=[ADD]),
    message(("tools", 0), anthropic.ClientTool, values.CLIENT_TOOL, tools=[{"type": "bash_20241022"}]),
    message(("tool_choice",), anthropic.ToolChoice, values.ANTHROPIC_CHOICE, tool_choice={"type": "tool", "name": "a"}),
    message(
        ("thinking",),
        anthropic.ThinkingEnabled,
        values.THINKING_ENABLED,
        thinking={"type": "enabled", "budget_tokens": 5},
    ),
    message(("thinking",), anthropic.ThinkingMode, values.THINKING_MODE, thinking={"type": "adaptive"}),
    message(("output_config",), anthropic.OutputConfig, values.OUTPUT_CONFIG, output_config={"effort": "high"}),
    message(
        ("output_config", "format"),
        anthropic.OutputFormat,
        values.OUTPUT_FORMAT,
        output_config={"format": {"type": "json_schema", "schema": {}}},
    ),
    message(
        ("context_management",),
        context_edits.ContextManagement,
        values.CONTEXT_MANAGEMENT,
        context_management={"x": 1},
    ),
    edit(context_edits.ClearToolUses, values.CLEAR_TOOL_USES, "clear_tool_uses_20250919"),
    edit(context_edits.ClearThinking, values.CLEAR_THINKING, "clear_thinking_20251015"),
    block("user", blocks.TextBlock, values.BLOCK_TEXT, {"type": "text", "text": "Hello"}),
    block("assistant", blocks.ThinkingBlock, values.BLOCK_THINKING, {"type": "thinking", "thinking": "hm"}),
    block(
        "assistant",
        blocks.RedactedThinkingBlock,
        values.BLOCK_REDACTED,
        {"type": "redacted_thinking", "data": "x"},
    ),
    block(
        "assistant",
        blocks.ToolUseBlock,
        values.BLOCK_CALL,
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2}},
    ),
    block("user", blocks.ToolResultBlock, values.BLOCK_RESULT, {"type": "tool_result", "tool_use_id": "t1"}),
)


def entries(kind: type[Accepted] | type[Refused]) -> list[Any]:
    return [
        pytest.param(place, name, entry, id=f"{place.request.__name__}.{place.named(name)}")
        for place in PLACES
        for name, entry in place.known.items()
        if isinstance(entry, kind)
    ]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.request.__name__}.{place.named('')}")
def test_accepted_fields_change_nothing(place: Place) -> None:
    notes = Notes()
    for name, entry in place.known.items():
        for value in ("x", 1, {"a": [1]}) if isinstance(entry, Accepted) else ():
            assert place.parsed(notes, **{name: value}) == place.parsed(), name
    assert not notes.unknown.keys() & place.known.keys()


@pytest.mark.parametrize(("place", "name", "entry"), entries(Refused))
def test_a_refused_field_is_named_and_its_neutral_values_are_taken(place: Place, name: str, entry: Refused) -> None:
    with pytest.raises(ApiError) as caught:
        place.parsed(**{name: entry.example})
    assert caught.value.code is entry.code
    assert caught.value.param == place.named(name)
    assert entry.why in caught.value.message
    for value in (None, "", [], {}, *entry.neutral):
        assert place.parsed(**{name: value}) == place.parsed()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.request.__name__}.{place.named('')}")
def test_a_served_field_is_read(place: Place) -> None:
    assert set(place.served) == set(place.names), "served_values.py has one value for each field"
    plain = place.object_of(place.parsed()) if place.model is not None else None
    for name, attribute in place.names.items():
        found = place.object_of(place.parsed(**{**place.companions.get(name, {}), name: place.served[name]}))
        assert attribute in found.model_fields_set, name
        if name != "type":  # most objects have one type
            assert getattr(found, attribute) != getattr(plain, attribute), name


@pytest.mark.parametrize("place", [place for place in PLACES if not place.path])
def test_an_empty_value_of_a_served_field_means_absent(place: Place) -> None:
    plain = place.parsed()
    nothing: tuple[Any, ...] = (None, [])
    for name, info in place.request.model_fields.items():
        if not info.is_required() and name not in place.body:
            for empty in nothing:
                assert place.parsed(None, **{name: empty}) == plain, name


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.request.__name__}.{place.named('')}")
def test_a_field_that_is_not_known_changes_nothing_and_is_noted(place: Place) -> None:
    notes = Notes()
    assert place.parsed(notes, colour="red") == place.parsed()
    assert ("colour" in notes.unknown) == (place.model is not None)


def test_every_table_of_the_page_is_sent() -> None:
    sent = {place.model for place in PLACES}
    assert {model for section in SECTIONS for model in section.models} == sent - {None}


def test_the_page_is_what_the_tables_say() -> None:
    assert Path(api_fields_page.PAGE).read_text() == api_fields_page.text(), "run `make pages`"


#: Types of the installed SDKs and classes of vLLM that define the fields of a section's objects.
SOURCES: Mapping[str, tuple[str, ...]] = json.loads(Path(__file__).with_name("field_sources.json").read_text())
VLLM: Mapping[str, Any] = json.loads(Path(__file__).with_name("vllm_fields.json").read_text())


def fields_of(source: str) -> Iterator[str]:
    """The names on the wire of a TypedDict, a model of an SDK, or a recorded class of vLLM."""
    module, _, name = source.partition(":")
    if module == "vllm":
        yield from VLLM["classes"][name]
        return
    kind = getattr(import_module(module), name)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from (info.alias or attribute for attribute, info in kind.model_fields.items())
    else:
        yield from get_type_hints(kind)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_every_field_of_the_sdks_and_of_vllm_has_its_row(section: Section) -> None:
    served = {name for model in section.models for name in names_of(model)}
    served |= set() if section.models else {"type", "text", "refusal"}
    missing = {
        name: source
        for source in SOURCES[section.title]
        for name in fields_of(source)
        if name not in served and name not in section.known
    }
    assert not missing, "say in the tables of wire whether it is served, accepted or refused"


def test_every_section_says_who_defines_its_fields() -> None:
    assert list(SOURCES) == [section.title for section in SECTIONS]
    recorded = {name for sources in SOURCES.values() for source in sources for name in source.split("vllm:")[1:]}
    assert recorded == set(VLLM["classes"])
