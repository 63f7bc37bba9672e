"""Requests to /v1/messages: what is accepted and refused, and the chat request that they become."""

import json
import typing
from typing import Any

import anthropic
import jsonschema
import pytest

from wire.anthropic.chat_request import prompt_translation, translation
from wire.anthropic.client_tools import CLIENT_TOOLS
from wire.anthropic.requests import CountTokensRequest, MessagesRequest
from wire.errors import ApiError, ErrorCode
from wire.strict_json import parse_model

HELLO = {"role": "user", "content": "Hello"}
ADD = {"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {}}}


def translated(**fields: Any) -> dict[str, Any]:
    body = {"model": "finch", "max_tokens": 9, "messages": [HELLO], **fields}
    return translation(parse_model(MessagesRequest, json.dumps(body).encode()))[0]


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        translated(**fields)
    return caught.value


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}


def test_system_and_sampling_become_those_of_a_chat_request() -> None:
    assert translated(
        system=[text("Be brief."), text("Be kind.")], temperature=0, top_p=0.5, top_k=3, stop_sequences=["END"]
    ) == {
        "model": "finch",
        "messages": [{"role": "system", "content": "Be brief.\n\nBe kind."}, HELLO],
        "max_completion_tokens": 9,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 3,
        "stop": ["END"],
        "include_stop_str_in_output": True,
    }


def test_blocks_become_messages_with_thoughts_calls_and_results() -> None:
    messages = [
        {"role": "user", "content": [text("1+1"), text("?")]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                text("Let me see."),
                {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": "\u00e9"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [text("2")], "is_error": False},
                text("So?"),
            ],
        },
    ]
    assert translated(messages=messages)["messages"] == [
        {"role": "user", "content": "1+1\n\n?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a": "\u00e9"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "2"},
        {"role": "user", "content": "So?"},
    ]


def test_tools_are_functions_and_any_means_required() -> None:
    fields = translated(tools=[ADD], tool_choice={"type": "any", "disable_parallel_tool_use": True})
    function = {"name": "add", "parameters": ADD["input_schema"], "description": "Adds."}
    assert fields["tools"] == [{"type": "function", "function": function}]
    assert (fields["tool_choice"], fields["parallel_tool_calls"]) == ("required", False)
    named = translated(tools=[ADD], tool_choice={"type": "tool", "name": "add"})
    assert named["tool_choice"] == {"type": "function", "function": {"name": "add"}}


def test_thinking_sets_the_template_and_the_budget() -> None:
    on = {"enable_thinking": True, "thinking": True}
    budgeted = translated(thinking={"type": "enabled", "budget_tokens": 50})
    assert (budgeted["chat_template_kwargs"], budgeted["thinking_budget"]) == (on, 50)
    assert translated(thinking={"type": "adaptive"})["chat_template_kwargs"] == on
    off = translated(thinking={"type": "disabled"})["chat_template_kwargs"]
    assert off == dict.fromkeys(on, False)
    assert "chat_template_kwargs" not in translated()


def test_a_last_message_of_the_assistant_is_continued() -> None:
    fields = translated(messages=[HELLO, {"role": "assistant", "content": "The answer is"}])
    assert (fields["continue_final_message"], fields["add_generation_prompt"]) == (True, False)
    assert "continue_final_message" not in translated()


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_a_forced_call_comes_behind_a_last_message_of_the_assistant(choice: dict[str, Any]) -> None:
    said = [HELLO, {"role": "assistant", "content": "Hello!"}]
    tools = [{"name": "add", "input_schema": {"type": "object"}}]
    assert "continue_final_message" not in translated(messages=said, tools=tools, tool_choice=choice)
    assert translated(messages=said, tools=tools, tool_choice={"type": "auto"})["continue_final_message"]


def test_a_schema_of_the_output_is_a_response_format() -> None:
    schema = {"type": "object"}
    config = {"format": {"type": "json_schema", "schema": schema}, "effort": "max"}
    fields = translated(output_config=config)
    assert fields["response_format"]["json_schema"] == {"name": "output", "schema": schema, "strict": True}
    assert fields["reasoning_effort"] == "max"
    assert translated(output_format=config["format"])["response_format"] == fields["response_format"]


def test_counting_needs_no_limit_and_makes_the_same_prompt() -> None:
    body = {"model": "finch", "messages": [HELLO], "system": "Be brief.", "tools": [ADD]}
    counted, _ = prompt_translation(parse_model(CountTokensRequest, json.dumps(body).encode()))
    asked = translated(system="Be brief.", tools=[ADD])
    assert counted.items() <= asked.items()


def test_a_system_message_stands_where_it_was_sent() -> None:
    messages = [HELLO, {"role": "system", "content": [text("Be brief.")]}, {"role": "ctx", "content": "now"}]
    assert translated(messages=messages)["messages"] == [
        HELLO,
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "now"},
    ]


def test_a_system_message_may_hold_for_one_turn_and_change_the_effort() -> None:
    brief = {"role": "system", "content": "Be brief.", "clear_at": "next_user_message"}
    effort = {"role": "system", "output_config": {"effort": "low"}}
    assert [one["role"] for one in translated(messages=[HELLO, brief])["messages"]] == ["user", "system"]
    fields = translated(messages=[HELLO, brief, effort, HELLO], output_config={"effort": "high"})
    assert ([one["role"] for one in fields["messages"]], fields["reasoning_effort"]) == (["user", "user"], "low")


def test_tools_that_anthropic_defines_are_functions_of_their_published_names() -> None:
    kinds = list(CLIENT_TOOLS)
    fields = translated(tools=[{"type": kind, "name": CLIENT_TOOLS[kind][0]} for kind in kinds])
    functions = [tool["function"] for tool in fields["tools"]]
    assert [function["name"] for function in functions] == [CLIENT_TOOLS[kind][0] for kind in kinds]
    for function in functions:
        jsonschema.Draft202012Validator.check_schema(function["parameters"])
        assert "command" in function["parameters"]["properties"]
    long_name = "mcp__" + "a" * 123
    assert translated(tools=[{**ADD, "name": long_name}])["tools"][0]["function"]["name"] == long_name


def test_every_client_tool_of_the_installed_sdk_is_served() -> None:
    """A newer version of bash, the text editor or the memory must be added by hand."""
    stems = ("tool_bash_", "tool_text_editor_", "memory_tool_")
    params = {
        typing.get_type_hints(kind)["type"]: typing.get_type_hints(kind)["name"]
        for name, kind in vars(anthropic.types.beta).items()
        if name.endswith("Param") and any(f"Beta{stem.title().replace('_', '')}" in name for stem in stems)
    }
    found = {typing.get_args(kind)[0]: typing.get_args(name)[0] for kind, name in params.items()}
    assert found == {kind: tool[0] for kind, tool in CLIENT_TOOLS.items()}


def test_text_in_results_of_tools_is_taken_in_every_shape() -> None:
    content = [
        text("a"),
        {"type": "tool_reference", "tool_name": "add"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "b"}, "title": "t"},
        {"type": "search_result", "source": "s", "title": "u", "content": [{"type": "text", "text": "c"}]},
    ]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content}
    [message] = translated(messages=[{"role": "user", "content": [result]}])["messages"]
    assert message["content"] == "a\n\nadd\n\nt\nb\n\nu\ns\nc"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages.0.content.0.type"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "image"}]}],
                    }
                ]
            },
            "messages.0.content.0.content.0.type",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]}, "messages.0"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        ({"tools": [{**ADD, "name": "a" * 129}]}, "tools.0.name"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"container": "x"}, "container"),
        ({"n": 2}, "n"),
        ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "context_management.edits.0.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_PARAMETER)
    assert error.param == param, error.message


def test_bookkeeping_and_unknown_fields_change_nothing() -> None:
    assert translated(thread={"type": "create"}, metadata={"user_id": "u"}, surprise=1) == translated()
