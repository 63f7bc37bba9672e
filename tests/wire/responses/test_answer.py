"""Answers of /v1/responses: order of the events, and every object against the models of the openai package."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from wire.answer_blocks import encode_event
from wire.answers import Delta, TokenLogprob, ToolCallDelta
from wire.chat import Usage
from wire.errors import ApiError, ErrorCode
from wire.responses.answer import ResponseAnswer
from wire.responses.replies import EVENTS as EVENT_SHAPES
from wire.responses.requests import ResponsesRequest
from wire.responses.tools import shown_tools
from wire.sse import SseDecoder

FAILURE = ApiError(ErrorCode.WORKER_FAILED, "The worker failed.")
USAGE = Usage.counted(7, 5, num_cached=4, num_thoughts=2)
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}}


def said(
    text: str = "", thoughts: str = "", calls: Sequence[ToolCallDelta] = (), logprobs: tuple[TokenLogprob, ...] = ()
) -> Delta:
    return Delta(text, (), thoughts, logprobs=logprobs or None, tool_calls=tuple(calls))


def answer_to(**fields: Any) -> ResponseAnswer:
    request = ResponsesRequest.model_validate({"model": "finch", "input": "Hello", **fields})
    return ResponseAnswer(request, shown_tools(request.tools), answer_id="abc", created=5)


def checked(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events that the client library takes in strict mode, numbered without a gap."""
    for number, event in enumerate(events):
        assert event["sequence_number"] == number
        EVENT_SHAPES[event["type"]].model_validate_json(json.dumps(event))
        parsed = EVENTS.validate_python(event, strict=True)
        assert parsed.type == event["type"]
    return events


def thoughts_text_and_calls(answer: ResponseAnswer) -> list[dict[str, Any]]:
    return [
        *answer.begin(said()),
        *answer.push(said(thoughts="h")),
        *answer.push(said(thoughts="m")),
        *answer.push(said(text="ye")),
        *answer.push(said(text="s")),
        *answer.push(said(calls=[ToolCallDelta(0, "call_1", "add", "")])),
        *answer.push(said(calls=[ToolCallDelta(0, None, None, '{"a":1}'), ToolCallDelta(1, "call_2", "add", "{}")])),
        *answer.finish("stop", USAGE),
    ]


def test_events_come_in_the_order_that_clients_expect() -> None:
    events = checked(thoughts_text_and_calls(answer_to(tools=[TOOL])))
    begun = ["response.output_item.added", "response.content_part.added"]
    ended = ["response.content_part.done", "response.output_item.done"]
    delta = "response.function_call_arguments.delta"
    call = ["response.output_item.added", delta, "response.function_call_arguments.done", "response.output_item.done"]
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        *begun,
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        *ended,
        *begun,
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        *ended,
        *call,
        *call,
        "response.completed",
    ]


def test_the_last_event_has_the_whole_answer() -> None:
    answer = answer_to(tools=[TOOL], metadata={"a": "b"}, instructions="Be brief.", tool_choice="required")
    events = thoughts_text_and_calls(answer)
    response = Response.model_validate(events[-1]["response"], strict=True)
    assert events[-1]["response"] == answer.whole
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
    assert (response.output_text, response.status) == ("yes", "completed")
    calls = [(item.call_id, item.name, item.arguments) for item in response.output if item.type == "function_call"]
    assert calls == [("call_1", "add", '{"a":1}'), ("call_2", "add", "{}")]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (7, 5, 12)
    assert response.usage.input_tokens_details.cached_tokens == 4
    assert response.usage.output_tokens_details.reasoning_tokens == 2
    assert (response.metadata, response.instructions, response.tool_choice) == ({"a": "b"}, "Be brief.", "required")
    assert events[0]["response"]["output"] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}}},
        {"text": {"format": {"type": "json_object"}}, "user": "u"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "add"}, "parallel_tool_calls": False},
        {"reasoning": {"effort": "low"}, "temperature": 0.5, "top_p": 0.5, "max_output_tokens": 3},
    ],
)
def test_what_a_response_repeats_of_its_request_is_valid(fields: dict[str, Any]) -> None:
    answer = answer_to(**fields)
    checked([*answer.begin(said()), *answer.push(said(text="x")), *answer.finish("stop", USAGE)])


def test_an_answer_at_its_limit_is_incomplete_and_so_is_its_last_item() -> None:
    answer = answer_to()
    events = checked(
        [
            *answer.begin(said()),
            *answer.push(said(thoughts="h")),
            *answer.push(said(text="x")),
            *answer.finish("length", USAGE),
        ]
    )
    assert events[-1]["type"] == "response.incomplete"
    assert answer.whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in answer.whole["output"]] == ["completed", "incomplete"]


def test_an_empty_answer_is_an_empty_message() -> None:
    answer = answer_to()
    checked([*answer.begin(said()), *answer.finish("stop", USAGE)])
    assert Response.model_validate(answer.whole, strict=True).output_text == ""
    assert len(answer.whole["output"]) == 1


def test_a_broken_answer_ends_as_failed() -> None:
    answer = answer_to()
    events = checked([*answer.begin(said()), *answer.push(said(text="x")), *answer.fail(FAILURE)])
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": "The worker failed."}


def test_logprobs_are_listed_where_they_are_asked_for() -> None:
    tokens = [TokenLogprob(7, -0.5, "y"), TokenLogprob(8, -1.5, "es")]
    listed = [
        {"token": "y", "bytes": [121], "logprob": -0.5, "top_logprobs": []},
        {"token": "es", "bytes": [101, 115], "logprob": -1.5, "top_logprobs": []},
    ]
    answer = answer_to(top_logprobs=1)
    pieces = [said("", logprobs=(tokens[0],)), said("yes", logprobs=(tokens[1],))]
    events = [*answer.begin(said())]
    for piece in pieces:
        events += answer.push(piece)
    checked([*events, *answer.finish("stop", USAGE)])
    assert [event["logprobs"] for event in events if "logprobs" in event] == [listed]
    assert answer.whole["output"][0]["content"][0]["logprobs"] == listed


def test_events_are_named_after_their_types() -> None:
    [event] = SseDecoder().feed(encode_event({"type": "response.created", "x": "\u00e9"}))
    assert (event.event, event.data) == ("response.created", '{"type":"response.created","x":"\u00e9"}')
