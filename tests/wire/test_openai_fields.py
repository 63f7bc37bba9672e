"""The tables of request fields are true: every field of OpenAI's and of vLLM's requests is sent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from docs import api_fields_page
from wire.errors import ApiError, ErrorCode
from wire.openai import fields
from wire.openai.fields import Accepted, Known, Refused
from wire.openai.requests import ChatCompletionRequest, CompletionRequest
from wire.openai.tokens import TokenizeRequest
from wire.openai.tolerance import Tolerant
from wire.strict_json import parse_model

CALL = {"model": "finch", "messages": [{"role": "user", "content": "Hello"}]}
TEXT = {"model": "finch", "prompt": "Hello"}

#: The model, a body without the field, the keys that lead to the object with the field, and the table.
PLACES: tuple[tuple[type[Tolerant], Mapping[str, Any], tuple[str | int, ...], Mapping[str, Known]], ...] = (
    (ChatCompletionRequest, CALL, (), fields.CHAT),
    (ChatCompletionRequest, CALL, ("messages", 0), fields.MESSAGE),
    (
        ChatCompletionRequest,
        {**CALL, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]},
        ("messages", 0, "content", 0),
        fields.PART,
    ),
    (
        ChatCompletionRequest,
        {**CALL, "stream": True, "stream_options": {"include_usage": True}},
        ("stream_options",),
        fields.STREAM_OPTIONS,
    ),
    (CompletionRequest, TEXT, (), fields.COMPLETIONS),
    (TokenizeRequest, TEXT, (), fields.TOKENIZE),
)


def parsed(place: tuple[Any, ...], name: str, value: Any) -> Tolerant:
    model, body, path, _ = place
    sent = json.loads(json.dumps(body))
    at = sent
    for key in path:
        at = at[key]
    at[name] = value
    found: Tolerant = parse_model(model, json.dumps(sent).encode())
    return found


def entries(kind: type[Accepted] | type[Refused]) -> list[Any]:
    return [
        pytest.param(place, name, entry, id=".".join(map(str, (*place[2], name))))
        for place in PLACES
        for name, entry in place[3].items()
        if isinstance(entry, kind)
    ]


@pytest.mark.parametrize(("place", "name", "entry"), entries(Accepted))
def test_an_accepted_field_changes_nothing(place: Any, name: str, entry: Accepted) -> None:
    assert parsed(place, name, entry.example) == parse_model(place[0], json.dumps(place[1]).encode())


@pytest.mark.parametrize(("place", "name", "entry"), entries(Refused))
def test_a_refused_field_is_named_and_its_neutral_values_are_taken(place: Any, name: str, entry: Refused) -> None:
    with pytest.raises(ApiError) as caught:
        parsed(place, name, entry.example)
    assert caught.value.code is ErrorCode.UNSUPPORTED_PARAMETER
    assert caught.value.param == ".".join(map(str, (*place[2], name)))
    assert entry.why in caught.value.message
    for value in (None, "", [], {}, *entry.neutral):
        assert parsed(place, name, value) == parse_model(place[0], json.dumps(place[1]).encode())


@pytest.mark.parametrize("place", [place for place in PLACES if not place[2]])
def test_an_empty_value_of_a_served_field_means_absent(place: Any) -> None:
    model = place[0]
    plain = parse_model(model, json.dumps(place[1]).encode())
    for name, info in model.model_fields.items():
        if not info.is_required() and name not in place[1]:
            assert parsed(place, name, None) == plain, name
            assert parsed(place, name, []) == plain, name


def test_a_field_that_is_not_known_is_refused_unless_it_is_empty() -> None:
    for place in PLACES:
        parsed(place, "colour", None)
        with pytest.raises(ApiError) as caught:
            parsed(place, "colour", "red")
        assert caught.value.param == ".".join(map(str, (*place[2], "colour")))


def test_the_page_is_what_the_tables_say() -> None:
    assert Path(api_fields_page.PAGE).read_text() == api_fields_page.text(), "run `make pages`"
