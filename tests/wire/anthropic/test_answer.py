"""Answers of /v1/messages: order of the events, and every object against the models of the anthropic package."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from wire.answers import Delta, ToolCallDelta
from wire.anthropic.answer import MessageAnswer
from wire.anthropic.errors import error_body
from wire.anthropic.replies import EVENTS as EVENT_SHAPES
from wire.chat import FinishReason, Usage
from wire.errors import ApiError, ErrorCode

USAGE = Usage.counted(7, 5, num_cached=4)
EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def said(text: str = "", thoughts: str = "", calls: Sequence[ToolCallDelta] = ()) -> Delta:
    return Delta(text, (), thoughts, tool_calls=tuple(calls))


def answer_with(*stops: str) -> MessageAnswer:
    return MessageAnswer(answer_id="abc", model="finch", stop_sequences=stops)


def checked(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events that the client library takes in strict mode."""
    for event in events:
        EVENT_SHAPES[event["type"]].model_validate_json(json.dumps(event))
        assert EVENTS.validate_python(event, strict=True).type == event["type"]
    return events


def test_events_come_in_the_order_that_clients_expect() -> None:
    answer = answer_with()
    events = checked(
        [
            *answer.begin(said()),
            *answer.push(said(thoughts="hm")),
            *answer.push(said(text="ye")),
            *answer.push(said(text="s")),
            *answer.push(said(calls=[ToolCallDelta(0, "t1", "add", '{"a"')])),
            *answer.push(said(calls=[ToolCallDelta(0, None, None, ":1}"), ToolCallDelta(1, "t2", "add", "")])),
            *answer.finish("stop", USAGE),
        ]
    )
    assert [(event["type"], event.get("index")) for event in events] == [
        ("message_start", None),
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
        ("content_block_start", 3),
        ("content_block_stop", 3),
        ("message_delta", None),
        ("message_stop", None),
    ]
    message = Message.model_validate(answer.whole, strict=True)
    assert message.stop_reason == "tool_use"
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.input for block in message.content if block.type == "tool_use"] == [{"a": 1}, {}]
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (3, 4, 5)
    assert events[-2]["usage"] == answer.whole["usage"]


def test_a_stop_sequence_is_named_and_is_no_part_of_the_text() -> None:
    answer = answer_with("D", "END")
    checked(
        [
            *answer.begin(said()),
            *answer.push(said(text="one ")),
            *answer.push(said(text="two END")),
            *answer.finish("stop", USAGE),
        ]
    )
    assert answer.whole["content"] == [{"type": "text", "text": "one two "}]
    assert (answer.whole["stop_reason"], answer.whole["stop_sequence"]) == ("stop_sequence", "END")


@pytest.mark.parametrize(("reason", "ended"), [("length", "max_tokens"), ("stop", "end_turn")])
def test_other_ends_name_no_sequence(reason: FinishReason, ended: str) -> None:
    answer = answer_with("END")
    list(answer.push(said(text="one")))
    list(answer.finish(reason, USAGE))
    assert (answer.whole["stop_reason"], answer.whole["stop_sequence"]) == (ended, None)


def test_a_sequence_at_the_limit_stays_in_the_text() -> None:
    answer = answer_with("END")
    list(answer.push(said(text="an END")))
    list(answer.push(said(text=" of it END")))
    list(answer.finish("length", USAGE))
    assert answer.whole["content"] == [{"type": "text", "text": "an END of it END"}]


def test_arguments_that_are_no_object_are_kept_as_text() -> None:
    answer = answer_with()
    list(answer.push(said(calls=[ToolCallDelta(0, "t1", "add", "[1,")])))
    list(answer.finish("stop", USAGE))
    assert answer.whole["content"][0]["input"] == {"arguments": "[1,"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_REQUEST, "invalid_request_error"),
        (ErrorCode.UNAUTHORIZED, "authentication_error"),
        (ErrorCode.MODEL_NOT_FOUND, "not_found_error"),
        (ErrorCode.RATE_LIMITED, "rate_limit_error"),
        (ErrorCode.QUEUE_FULL, "overloaded_error"),
        (ErrorCode.WORKER_FAILED, "api_error"),
    ],
)
def test_errors_have_the_types_that_clients_know(code: ErrorCode, kind: str) -> None:
    body = error_body(ApiError(code, "No.")).model_dump()
    assert body == {"type": "error", "error": {"type": kind, "message": "No.", "code": code, "param": None}}


def test_a_broken_answer_ends_with_an_error() -> None:
    answer = answer_with()
    events = [
        *answer.begin(said()),
        *answer.push(said(text="x")),
        *answer.fail(ApiError(ErrorCode.WORKER_FAILED, "No.")),
    ]
    assert (events[-1]["type"], events[-1]["error"]["type"]) == ("error", "api_error")
