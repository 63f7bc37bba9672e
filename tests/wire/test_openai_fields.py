"""The tables of docs/api-fields.md are true: every field of every table is sent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from docs import api_fields_page
from tests.wire import served_values as values
from tests.wire.served_values import Values
from wire.anthropic import blocks
from wire.anthropic import fields as anthropic_fields
from wire.anthropic import requests as anthropic
from wire.errors import ApiError, ErrorCode
from wire.openai import embeddings, fields
from wire.openai.fields import Accepted, Known, Refused
from wire.openai.messages import RequestMessage
from wire.openai.requests import ChatCompletionRequest, CompletionRequest, StreamOptions
from wire.openai.structured import StructuredOutputs
from wire.openai.tokens import TokenizeRequest
from wire.openai.tolerance import Tolerant
from wire.responses import fields as responses_fields
from wire.responses import items
from wire.responses import requests as responses
from wire.strict_json import parse_model

CALL = {"model": "finch", "messages": [{"role": "user", "content": "Hello"}]}
TEXT = {"model": "finch", "prompt": "Hello"}
INPUT = {"model": "finch", "input": "Hello"}
MESSAGES = {**CALL, "max_tokens": 9}
ADD = {"name": "add", "input_schema": {}}


@dataclass(frozen=True)
class Place:
    """An object in a request: the request's model, a body without the field, the keys that lead to the object, the
    object's model (none where the wire reads it without one), the table, a value of each served field, and what the
    object must have besides for some."""

    request: type[Tolerant]
    body: Values
    path: tuple[str | int, ...]
    model: type[Tolerant] | None
    known: Mapping[str, Known]
    served: Values = field(default_factory=dict)
    companions: Mapping[str, Values] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        """Attributes of the served fields by the names on the wire."""
        found = self.model.model_fields if self.model is not None else {}
        return {info.alias or attribute: attribute for attribute, info in found.items()}

    def named(self, name: str) -> str:
        """How an error names a field of the object."""
        return ".".join(map(str, (*self.path, name)))

    def parsed(self, **changes: Any) -> Tolerant:
        """The request whose object has these fields, too."""
        sent = json.loads(json.dumps(self.body))
        at = sent
        for key in self.path:
            at = at[key]
        at.update(changes)
        found: Tolerant = parse_model(self.request, json.dumps(sent).encode())
        return found

    def object_of(self, request: Any) -> Any:
        """The object in a parsed request."""
        for key in self.path:
            request = request[key] if isinstance(key, int) else getattr(request, key)
        return request


def item(model: type[Tolerant], served: Values, body: Values) -> Place:
    return Place(
        responses.ResponsesRequest,
        {**INPUT, "input": [body]},
        ("input", 0),
        model,
        responses_fields.ITEM,
        served,
    )


def part(model: type[Tolerant], served: Values, body: Values) -> Place:
    sent = {**INPUT, "input": [{"role": "assistant", "content": [body]}]}
    path = ("input", 0, "content", 0)
    return Place(responses.ResponsesRequest, sent, path, model, responses_fields.PART, served)


def block(role: str, model: type[Tolerant], served: Values, body: Values) -> Place:
    sent = {**MESSAGES, "messages": [{"role": role, "content": [body]}]}
    path = ("messages", 0, "content", 0)
    return Place(anthropic.MessagesRequest, sent, path, model, anthropic_fields.BLOCK, served)


def thinking(model: type[Tolerant], served: Values, body: Values) -> Place:
    sent = {**MESSAGES, "thinking": body}
    return Place(anthropic.MessagesRequest, sent, ("thinking",), model, anthropic_fields.THINKING, served)


PLACES = (
    Place(
        ChatCompletionRequest,
        CALL,
        (),
        ChatCompletionRequest,
        fields.CHAT,
        values.CHAT,
        values.CHAT_COMPANIONS,
    ),
    Place(
        ChatCompletionRequest,
        CALL,
        ("messages", 0),
        RequestMessage,
        fields.MESSAGE,
        values.MESSAGE,
        values.MESSAGE_COMPANIONS,
    ),
    Place(
        ChatCompletionRequest,
        {**CALL, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]},
        ("messages", 0, "content", 0),
        None,
        fields.PART,
    ),
    Place(
        ChatCompletionRequest,
        {**CALL, "stream": True, "stream_options": {"include_usage": True}},
        ("stream_options",),
        StreamOptions,
        fields.STREAM_OPTIONS,
        values.STREAM_OPTIONS,
    ),
    Place(
        CompletionRequest,
        {**TEXT, "structured_outputs": {"regex": None}},
        ("structured_outputs",),
        StructuredOutputs,
        fields.STRUCTURED_OUTPUTS,
        values.STRUCTURED_OUTPUTS,
    ),
    Place(
        CompletionRequest,
        TEXT,
        (),
        CompletionRequest,
        fields.COMPLETIONS,
        values.COMPLETIONS,
        values.CHAT_COMPANIONS,
    ),
    Place(
        TokenizeRequest,
        TEXT,
        (),
        TokenizeRequest,
        fields.TOKENIZE,
        values.TOKENIZE,
        values.TOKENIZE_COMPANIONS,
    ),
    Place(
        embeddings.EmbeddingRequest,
        INPUT,
        (),
        embeddings.EmbeddingRequest,
        embeddings.FIELDS,
        values.EMBEDDINGS,
    ),
    Place(
        responses.ResponsesRequest,
        INPUT,
        (),
        responses.ResponsesRequest,
        responses_fields.RESPONSES,
        values.RESPONSES,
    ),
    Place(
        responses.ResponsesRequest,
        {**INPUT, "tools": [{"type": "function", "name": "add"}]},
        ("tools", 0),
        responses.FunctionTool,
        responses_fields.TOOL,
        values.RESPONSES_TOOL,
    ),
    Place(
        responses.ResponsesRequest,
        {**INPUT, "text": {"format": {"type": "text"}}},
        ("text",),
        responses.TextOptions,
        responses_fields.TEXT,
        values.TEXT,
    ),
    Place(
        responses.ResponsesRequest,
        {**INPUT, "reasoning": {"effort": "high"}},
        ("reasoning",),
        responses.Reasoning,
        responses_fields.REASONING,
        values.REASONING,
    ),
    Place(
        responses.ResponsesRequest,
        {**INPUT, "stream": True, "stream_options": {"include_obfuscation": False}},
        ("stream_options",),
        responses.StreamOptions,
        responses_fields.STREAM_OPTIONS,
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
    Place(
        anthropic.MessagesRequest,
        MESSAGES,
        (),
        anthropic.MessagesRequest,
        anthropic_fields.MESSAGES,
        values.MESSAGES,
    ),
    Place(
        anthropic.CountTokensRequest,
        CALL,
        (),
        anthropic.CountTokensRequest,
        anthropic_fields.CONVERSATION,
        values.CONVERSATION,
    ),
    Place(
        anthropic.MessagesRequest,
        {**MESSAGES, "tools": [ADD]},
        ("tools", 0),
        anthropic.Tool,
        anthropic_fields.TOOL,
        values.ANTHROPIC_TOOL,
    ),
    thinking(anthropic.ThinkingEnabled, values.THINKING_ENABLED, {"type": "enabled", "budget_tokens": 5}),
    thinking(anthropic.ThinkingMode, values.THINKING_MODE, {"type": "adaptive"}),
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
        if isinstance(entry, kind) and name not in place.names
    ]


@pytest.mark.parametrize(("place", "name", "entry"), entries(Accepted))
def test_an_accepted_field_changes_nothing(place: Place, name: str, entry: Accepted) -> None:
    assert place.parsed(**{name: entry.example}) == place.parsed()


@pytest.mark.parametrize(("place", "name", "entry"), entries(Refused))
def test_a_refused_field_is_named_and_its_neutral_values_are_taken(place: Place, name: str, entry: Refused) -> None:
    with pytest.raises(ApiError) as caught:
        place.parsed(**{name: entry.example})
    assert caught.value.code is ErrorCode.UNSUPPORTED_PARAMETER
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
    for name, info in place.request.model_fields.items():
        if not info.is_required() and name not in place.body:
            assert place.parsed(**{name: None}) == plain, name
            assert place.parsed(**{name: []}) == plain, name


def test_a_field_that_is_not_known_is_refused_unless_it_is_empty() -> None:
    for place in PLACES:
        place.parsed(colour=None)
        with pytest.raises(ApiError) as caught:
            place.parsed(colour="red")
        assert caught.value.param == place.named("colour")


def test_every_table_of_the_page_is_sent() -> None:
    tables = {(model, id(place.known)) for place in PLACES for model in [place.model]}
    for section in api_fields_page.SECTIONS:
        for model in section.models:
            assert (model, id(section.known)) in tables, (section.title, model)


def test_the_page_is_what_the_tables_say() -> None:
    assert Path(api_fields_page.PAGE).read_text() == api_fields_page.text(), "run `make pages`"
