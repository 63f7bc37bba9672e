"""Requests to /v1/responses: what is accepted and refused, and the chat request that they become."""

import json
from typing import Any

import pytest

from wire.errors import ApiError, ErrorCode
from wire.responses.chat_request import translation
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
    return translation(request(**fields)).fields


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
    assert fields["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "mul"}}]},
    }
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
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools.0.type"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "x"}]}]},
            "tools.0.tools.0.type",
        ),
        ({"truncation": "auto"}, "truncation"),
        ({"n": 2}, "n"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input.0.content.0.type",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED_PARAMETER, param), error.message


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"input": []}, "input", "needs at least 1 item"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice", "hosted tools are not run here"),
        ({"tools": [{**ADD, "name": "a b"}]}, "tools.0.name", "pattern"),
        ({"max_output_tokens": 0}, "max_output_tokens", "greater than or equal to 1"),
    ],
)
def test_a_wrong_value_is_named_in_the_words_of_the_request(fields: dict[str, Any], param: str, message: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == (ErrorCode.INVALID_REQUEST, param), error.message
    assert error.message.startswith(param)
    assert message in error.message


def test_functions_of_a_namespace_are_shown_by_their_full_names_and_errors_name_their_places() -> None:
    tools = [
        MUL,
        {"type": "web_search", "external_web_access": False},
        {"type": "namespace", "name": "crm", "description": "Of customers.", "tools": [ADD, MUL]},
        {"type": "namespace", "name": "mcp__sea__", "tools": [MUL]},
    ]
    called = {"type": "function_call", "call_id": "c", "namespace": "crm", "name": "add", "arguments": "{}"}
    found = translation(request(tools=tools, input=[{"role": "user", "content": "So?"}, called]))
    names = [tool["function"]["name"] for tool in found.fields["tools"]]
    assert names == ["mul", "crm__add", "crm__mul", "mcp__sea__mul"]
    assert found.fields["tools"][1]["function"]["description"] == "Of customers.\n\nAdds."
    assert found.fields["messages"][1]["tool_calls"][0]["function"]["name"] == "crm__add"
    assert found.tools.hosted == ["web_search"]
    assert found.tools.split("crm__add") == {"name": "add", "namespace": "crm"}
    assert found.tools.split("mul") == {"name": "mul"}
    error = ApiError(ErrorCode.INVALID_REQUEST, "tools.2.function.name: no", param="tools.2.function.name")
    assert found.names.renamed(error).param == "tools.2.tools.1.name"
    inner = ApiError(ErrorCode.INVALID_REQUEST, "no", param="messages.1.tool_calls.0.id")
    assert found.names.renamed(inner).param == "input.1"


@pytest.mark.parametrize(
    "kind",
    [
        *("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
        *("file_search", "code_interpreter", "image_generation", "local_shell"),
    ],
)
def test_hosted_tools_are_left_out(kind: str) -> None:
    found = translation(request(tools=[{"type": kind}], tool_choice="auto"))
    assert found.tools.hosted == [kind]
    assert found.fields == translated()


def test_broken_arguments_and_empty_contents_are_history() -> None:
    items = [
        {"role": "user", "content": None},
        {"type": "function_call", "call_id": "c1", "name": "not a name", "arguments": '{"a'},
        {"type": "function_call_output", "call_id": "c1", "output": []},
    ]
    messages = translated(input=items)["messages"]
    assert [message["content"] for message in messages] == ["", None, ""]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "not a name", "arguments": '{"a'}


def test_null_means_absent_and_fields_without_effect_are_accepted() -> None:
    fields = dict.fromkeys(("tools", "tool_choice", "text", "include", "previous_response_id", "background"), None)
    without_effect = {
        "store": True,
        "user": "u",
        "prompt_cache_key": "k",
        "service_tier": "auto",
        "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
        "metadata": {"a": "b"},
        "client_metadata": {"turn_id": "x"},
        "text": {"verbosity": "low"},
        "background": False,
        "surprise": 1,
    }
    assert translated(**{**fields, **without_effect}) == translated()
