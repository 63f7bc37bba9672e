"""Requests to /v1/responses: what is accepted and refused, and the chat request that they become."""

import json
from typing import Any

import pytest

from wire.errors import ApiError, ErrorCode
from wire.responses.chat_request import chat_fields
from wire.responses.requests import ResponsesRequest
from wire.strict_json import parse_model

ADD = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": True,
}
MUL = {"type": "function", "name": "mul", "parameters": None}


def request(**fields: Any) -> ResponsesRequest:
    return parse_model(ResponsesRequest, json.dumps({"model": "finch", "input": "Hello", **fields}).encode())


def translated(**fields: Any) -> dict[str, Any]:
    return chat_fields(request(**fields))


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        translated(**fields)
    return caught.value


def test_text_and_instructions_become_messages_and_limits_keep_their_values() -> None:
    assert translated(instructions="Be brief.", max_output_tokens=7, temperature=0, top_p=0.5, store=True) == {
        "model": "finch",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "max_completion_tokens": 7,
        "temperature": 0,
        "top_p": 0.5,
    }


def test_items_of_one_answer_become_one_message_of_the_assistant() -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "1+1"}, {"type": "input_text", "text": "?"}]},
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
            "encrypted_content": None,
            "status": None,
        },
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": None}],
        },
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}', "id": "fc_1"},
        {"type": "function_call", "call_id": "c2", "name": "add", "arguments": '{"a": 2}', "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "3"}]},
        {"type": "function_call", "call_id": "c3", "name": "add", "arguments": "{}"},
    ]

    def call(name: str, arguments: str) -> dict[str, Any]:
        return {"id": name, "type": "function", "function": {"name": "add", "arguments": arguments}}

    assert translated(input=items)["messages"] == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [call("c1", '{"a": 1}'), call("c2", '{"a": 2}')],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "tool", "tool_call_id": "c2", "content": "3"},
        {"role": "assistant", "content": None, "tool_calls": [call("c3", "{}")]},
    ]


def test_tools_and_the_choice_among_them_are_nested_as_in_chat_requests() -> None:
    function = {key: value for key, value in ADD.items() if key != "type"}
    named = translated(tools=[ADD, MUL], tool_choice={"type": "function", "name": "add"}, parallel_tool_calls=False)
    assert named["tools"] == [
        {"type": "function", "function": function},
        {"type": "function", "function": {"name": "mul"}},
    ]
    assert named["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert named["parallel_tool_calls"] is False
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "mul"}]}
    fields = translated(tools=[ADD, MUL], tool_choice=allowed)
    assert [tool["function"]["name"] for tool in fields["tools"]] == ["mul"]
    assert fields["tool_choice"] == "required"
    assert "tool_choice" not in translated(tools=[], tool_choice="auto")


def test_formats_and_effort_are_those_of_chat_requests() -> None:
    schema = {"type": "object", "properties": {}}
    given = {"type": "json_schema", "name": "reply", "schema": schema, "strict": True}
    assert translated(text={"format": given})["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "schema": schema, "strict": True},
    }
    assert translated(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    assert "response_format" not in translated(text={"format": {"type": "text"}})
    assert translated(reasoning={"effort": "low", "summary": "auto"})["reasoning_effort"] == "low"


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"previous_response_id": "resp_1"}, ErrorCode.UNSUPPORTED_PARAMETER, "previous_response_id"),
        ({"conversation": "conv_1"}, ErrorCode.UNSUPPORTED_PARAMETER, "conversation"),
        ({"background": True}, ErrorCode.UNSUPPORTED_PARAMETER, "background"),
        ({"tools": [{"type": "web_search"}]}, ErrorCode.INVALID_REQUEST, "tools.0.type"),
        ({"truncation": "auto"}, ErrorCode.UNSUPPORTED_PARAMETER, "truncation"),
        ({"text": {"verbosity": "low"}}, ErrorCode.UNSUPPORTED_PARAMETER, "text.verbosity"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, ErrorCode.INVALID_REQUEST, "input.0"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            ErrorCode.INVALID_REQUEST,
            "input.0.content.0",
        ),
        ({"input": []}, ErrorCode.INVALID_REQUEST, "input"),
        ({"surprise": 1}, ErrorCode.UNSUPPORTED_PARAMETER, "surprise"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], code: ErrorCode, param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == (code, param), error.message


def test_an_allowed_tool_that_is_not_given_is_refused() -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "sub"}]}
    assert refusal(tools=[ADD], tool_choice=allowed).param == "tool_choice"


def test_null_means_absent_and_fields_without_effect_are_accepted() -> None:
    fields = dict.fromkeys(("tools", "tool_choice", "text", "include", "previous_response_id", "background"), None)
    without_effect = {
        "store": True,
        "user": "u",
        "prompt_cache_key": "k",
        "service_tier": "auto",
        "include": ["reasoning.encrypted_content"],
        "metadata": {"a": "b"},
        "background": False,
    }
    assert translated(**{**fields, **without_effect}) == translated()
