"""The OpenAI schema: what is accepted and refused, and the chunks of an answer."""

import json
from typing import Any

import pytest

from wire.answers import Delta, Finished, PromptEcho, TokenLogprob, ToolCallDelta, TopLogprob
from wire.chat import MAX_TOKENS, Usage
from wire.errors import ApiError, ErrorCode
from wire.openai.replies import ChatCompletion, ChatCompletionChunk, TextCompletion, TextCompletionChunk
from wire.openai.requests import ChatCompletionRequest, CompletionRequest
from wire.openai.shape import AnswerHead, AnswerShape
from wire.openai.shaping import StreamShaper
from wire.openai.whole import WholeShaper
from wire.sse import SseDecoder
from wire.strict_json import parse_model

HELLO = {"role": "user", "content": "Hello"}
USAGE = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5)


def chat(**fields: Any) -> ChatCompletionRequest:
    body = {"model": "finch", "messages": [HELLO], **fields}
    return parse_model(ChatCompletionRequest, json.dumps(body).encode())


def completion(**fields: Any) -> CompletionRequest:
    return parse_model(CompletionRequest, json.dumps({"model": "finch", "prompt": "a", **fields}).encode())


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        chat(**fields)
    return caught.value


def test_text_parts_are_joined_and_developer_means_system() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    request = chat(messages=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}])
    assert [(message.role, message.content) for message in request.chat_messages()] == [
        ("system", "Be brief."),
        ("user", "Hello"),
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 17}, "n"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_k": -2}, "top_k"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"audio": {"voice": "a"}}, "audio"),
        ({"frequency_penalty": 2.5}, "frequency_penalty"),
        ({"presence_penalty": -3}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"model": ""}, "model"),
    ],
)
def test_what_is_not_served_is_refused_and_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.status == 400
    assert error.param == param


def test_an_image_is_refused() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
    assert refusal(messages=[{"role": "user", "content": [part]}]).status == 400


def test_stream_options_need_a_stream() -> None:
    assert refusal(stream_options={"include_usage": True}).code is ErrorCode.INVALID_REQUEST
    assert chat(stream=True, stream_options={"include_usage": True, "include_obfuscation": False}).shape.usage
    assert not chat(stream=True).shape.usage


def test_penalties_and_biases_are_options_of_sampling() -> None:
    request = chat(presence_penalty=0.5, frequency_penalty=-1, repetition_penalty=1.1, logit_bias={"50256": -100})
    sampling = request.sampling()
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (0.5, -1, 1.1)
    assert sampling.logit_bias == {50256: -100}


def test_null_means_absent() -> None:
    nulls = dict.fromkeys(("temperature", "top_p", "max_tokens", "stop", "seed", "stream", "n", "logprobs"))
    assert chat(**nulls).sampling() == chat().sampling()


def test_the_newer_name_of_the_token_limit_wins() -> None:
    assert chat(max_tokens=5, max_completion_tokens=7).sampling().max_tokens == 7
    assert chat(max_tokens=5).sampling().max_tokens == 5


@pytest.mark.parametrize(
    ("stop", "expected"), [("a", ("a",)), (["a", "b"], ("a", "b")), (None, None), ("", None), ([], None)]
)
def test_stop_is_one_string_or_a_list(stop: Any, expected: Any) -> None:
    assert chat(stop=stop).sampling().stop == expected


@pytest.mark.parametrize("stop", [[""], ["x"] * 17, 5, ["x" * 257]])
def test_an_unusable_stop_is_refused(stop: Any) -> None:
    assert refusal(stop=stop).status == 400


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Once", ("Once",)),
        (["Once"], ("Once",)),
        (["a", "b"], ("a", "b")),
        ([5, 6], ((5, 6),)),
        ([[5, 6], [7]], ((5, 6), (7,))),
    ],
)
def test_a_completion_takes_texts_and_token_ids(prompt: Any, expected: Any) -> None:
    assert completion(prompt=prompt).prompt == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt.1"),
        ({"prompt": [1, True]}, "prompt.1"),
        ({"prompt": [[1], [-1]]}, "prompt.1.0"),
        ({"prompt": [[1], []]}, "prompt.1"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": ["a"] * 257}, "prompt"),
        ({"prompt": ["a"] * 256, "n": 16}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"suffix": "end"}, "suffix"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ],
)
def test_an_unusable_completion_names_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        completion(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_each_prompt_is_a_request_of_its_own() -> None:
    requests = completion(prompt=["a", [5]], echo=True, logprobs=2, max_tokens=0).generate_requests("r")
    assert [(one.request_id, one.prompt, one.prompt_token_ids) for one in requests] == [
        ("r", "a", None),
        ("r.1", None, (5,)),
    ]
    assert all(one.return_prompt and one.sampling.prompt_logprobs == 2 for one in requests)


def test_the_fields_of_a_reply_are_taken_back() -> None:
    reply: dict[str, Any] = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [],
        "provider_specific_fields": {"x": 1},
        "reasoning": "thinking",
    }
    [_, message] = chat(messages=[HELLO, reply]).chat_messages()
    assert (message.content, message.reasoning_content, message.tool_calls) == ("Hi", "thinking", ())


def test_a_call_of_a_tool_and_its_result_are_part_of_the_history() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    request = chat(
        messages=[
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
        ],
        tools=[tool],
        parallel_tool_calls=False,
    ).generate_request("r")
    assert request.messages is not None
    assert [message.content for message in request.messages] == ["Hello", "", "5"]
    assert request.messages[1].tool_calls[0].function.name == "f"
    assert request.tools[0].function.parameters == {"type": "object"}
    assert not request.parallel_tool_calls


@pytest.mark.parametrize("content", [None, "", [], [""], [{"type": "text", "text": ""}]])
@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer", "tool", "function"])
def test_a_content_may_be_nothing(content: Any, role: str) -> None:
    [_, message] = chat(messages=[HELLO, {"role": role, "content": content}]).chat_messages()
    assert message.content == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": "hm"},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"thinking": "hm"},
        {"reasoning_text": "hm"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": ""}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.summary", "summary": "m"}]},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "a"},
            ]
        },
    ],
)
def test_thoughts_come_back_by_every_name(fields: dict[str, Any]) -> None:
    [message] = chat(messages=[{"role": "assistant", "content": "a", **fields}]).chat_messages()
    assert (message.content, message.reasoning_content) == ("a", "hm")


@pytest.mark.parametrize("arguments", ['{"a": 1', "[1]", "null", "a", '{"a": 1}{', {"a": 1}, None])
def test_arguments_in_the_history_may_be_anything(arguments: Any) -> None:
    function = {"name": "not a name", "arguments": arguments, "parsed_arguments": None}
    call = {"index": 0, "id": "c" * 300, "type": "function", "function": function}
    [message] = chat(messages=[{"role": "assistant", "tool_calls": [call], "parsed": {"a": 1}}]).chat_messages()
    assert message.tool_calls[0].function.arguments == (
        arguments if isinstance(arguments, str) else json.dumps(arguments or {}) if arguments else ""
    )


def test_allowed_tools_leave_the_others_out() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}
    request = chat(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    generate = request.generate_request("r")
    assert [tool.function.name for tool in generate.tools] == ["g"]
    assert generate.tool_choice == "required"
    other = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "h"}}]}
    error = refusal(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": other})
    assert (error.param, error.message) == ("tool_choice", "tool_choice: 'h' is none of the tools")
    assert "allowed_tools" in refusal(tools=tools, tool_choice={"type": "hosted"}).message


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_bound_that_no_context_reaches_is_taken(field: str) -> None:
    assert chat(**{field: -1}).sampling().max_tokens is None
    assert chat(**{field: 2**60}).sampling().max_tokens == MAX_TOKENS
    assert refusal(**{field: 0}).param == field
    assert refusal(**{field: -2}).param == field


@pytest.mark.parametrize(
    ("messages", "param", "words"),
    [
        ([], "messages", "needs at least 1 item"),
        ([{"role": "user", "content": "a"}] * 4097, "messages", "more than 4096 items"),
        ([{"role": "user", "content": 5}], "messages.0.content", "list of text parts"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages.0.content.0.type", "images"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages.0.content.0.text", "string"),
        ([{"role": "user", "content": [5]}], "messages.0.content.0", "part"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages.0.content.0.type", "audio parts are not"),
        ([{"role": "user", "content": "a", "tool_call_id": "c"}], "messages.0.tool_call_id", "call"),
        ([{"role": "user", "content": "a", "audio": {"id": "x"}}], "messages.0.audio", "text"),
    ],
)
def test_a_message_that_cannot_be_served_says_what_is_wrong(messages: Any, param: str, words: str) -> None:
    error = refusal(messages=messages)
    assert (error.status, error.param) == (400, param)
    assert words in error.message


def test_hints_for_caches_are_accepted_without_effect() -> None:
    part = {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}
    assert chat(messages=[{"role": "user", "content": [part]}]).chat_messages() == chat().chat_messages()


def test_the_shape_of_an_answer_follows_the_request() -> None:
    assert chat(n=3, logprobs=True, top_logprobs=2).shape == AnswerShape("chat", n=3, logprobs=True)
    assert chat(logprobs=True, top_logprobs=2).sampling().logprobs == 2
    assert chat(logprobs=True).sampling().logprobs == 0
    assert refusal(top_logprobs=2).param == "top_logprobs"
    assert refusal(continue_final_message=True).param == "continue_final_message"


HEAD = AnswerHead("c-1", "finch", 1)


def streamed(shape: AnswerShape, *events: Delta | Finished) -> list[dict[str, Any]]:
    shaper = StreamShaper(shape, HEAD)
    data = b"".join(
        shaper.finished(0, event) if isinstance(event, Finished) else shaper.delta(0, event) for event in events
    )
    decoder = SseDecoder()
    return [json.loads(event.data) for event in decoder.feed(data + shaper.end())]


def whole(shape: AnswerShape, *events: Delta | Finished) -> dict[str, Any]:
    shaper = WholeShaper(shape, HEAD)
    for event in events:
        if isinstance(event, Finished):
            shaper.finished(0, event)
        else:
            shaper.delta(0, event)
    return shaper.completion()


END = Finished("stop", USAGE)


def token(text: str, logprob: float, raw: str = "") -> TokenLogprob:
    return TokenLogprob(7, logprob, text, raw, (TopLogprob(8, -0.5, "x"),))


def test_a_chat_stream_opens_with_the_role_and_closes_with_the_reason() -> None:
    first, text, last, usage = streamed(AnswerShape("chat", usage=True), Delta("Hi", (1,)), Finished("length", USAGE))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text["choices"][0]["delta"] == {"content": "Hi"}
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 5)


def test_whole_answers_have_the_shape_of_their_kind() -> None:
    made = whole(AnswerShape("chat"), Delta("Hi", (1,)), END)
    assert made["object"] == "chat.completion"
    assert made["choices"][0]["message"] == {"role": "assistant", "content": "Hi"}
    text = whole(AnswerShape("text"), Delta("Hi", (1,)), END)
    assert (text["object"], text["choices"][0]["text"]) == ("text_completion", "Hi")


def test_an_aborted_answer_says_stop_since_clients_know_no_abort() -> None:
    assert whole(AnswerShape("chat"), Finished("abort", USAGE))["choices"][0]["finish_reason"] == "stop"


def test_samples_of_a_stream_have_their_own_roles_texts_and_ends() -> None:
    chunks = streamed(
        AnswerShape("chat", n=2),
        Delta("a", (1,)),
        Delta("b", (2,), index=1),
        Delta("", (3,), index=1, finish_reason="length"),
        Delta("", (4,), finish_reason="stop"),
        END,
    )
    seen = [(chunk["choices"][0]["index"], chunk["choices"][0]["finish_reason"]) for chunk in chunks]
    assert seen == [(0, None), (0, None), (1, None), (1, None), (1, "length"), (0, "stop")]


def test_pieces_of_tool_calls_become_whole_calls() -> None:
    pieces = (
        Delta("", (1,), tool_calls=(ToolCallDelta(0, "c0", "f", ""),)),
        Delta("", (2,), tool_calls=(ToolCallDelta(0, None, None, '{"a":'), ToolCallDelta(1, "c1", "g", "{}"))),
        Delta("", (3,), tool_calls=(ToolCallDelta(0, None, None, "1}"),)),
        Finished("tool_calls", USAGE),
    )
    [choice] = whole(AnswerShape("chat"), *pieces)["choices"]
    calls = [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in choice["message"]["tool_calls"]
    ]
    assert calls == [("c0", "f", '{"a":1}'), ("c1", "g", "{}")]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    for chunk in streamed(AnswerShape("chat"), *pieces):
        ChatCompletionChunk.model_validate(chunk)


def test_log_probabilities_of_a_part_of_a_character_have_its_bytes() -> None:
    deltas = (
        Delta("", (7,), logprobs=(token("\ufffd", -1.0, "f09f"),)),
        Delta("\U0001f642", (7,), logprobs=(token("\ufffd", -2.0, "9982"),)),
    )
    [choice] = whole(AnswerShape("chat", logprobs=True), *deltas, END)["choices"]
    assert [entry["bytes"] for entry in choice["logprobs"]["content"]] == [[0xF0, 0x9F], [0x99, 0x82]]
    [choice] = whole(AnswerShape("text", logprobs=True), *deltas, END)["choices"]
    assert choice["logprobs"]["tokens"] == ["bytes:\\xf0\\x9f", "bytes:\\x99\\x82"]
    assert choice["logprobs"]["text_offset"] == [0, 0]
    tokens = [chunk["choices"][0]["logprobs"] for chunk in streamed(AnswerShape("text", logprobs=True), *deltas, END)]
    assert [entry["token_logprobs"] for entry in tokens if entry] == [[-1.0], [-2.0]]


def test_an_echo_has_the_log_probabilities_of_the_prompt_before_those_of_the_answer() -> None:
    shape = AnswerShape("text", n=2, logprobs=True, echo=True)
    events = (
        Delta("", (), prompt=PromptEcho("ab", (5, 6), TopLogprob(5, 0.0, "a"))),
        Delta("d", (9,), index=1, logprobs=(token("d", -2.0),)),
        Delta("c", (7,), logprobs=(token("c", -3.0),), prompt_logprobs=(None, token("b", -1.0))),
        END,
    )
    for choice, said, last in zip(whole(shape, *events)["choices"], ("abc", "abd"), (-3.0, -2.0), strict=True):
        assert choice["text"] == said
        assert choice["logprobs"]["token_logprobs"] == [None, -1.0, last]
        assert choice["logprobs"]["text_offset"] == [0, 1, 2]
        assert choice["logprobs"]["top_logprobs"][1] == {"x": -0.5, "b": -1.0}
    chunks = [chunk["choices"][0] for chunk in streamed(shape, *events)]
    for index, said in enumerate(("abc", "abd")):
        assert "".join(chunk["text"] for chunk in chunks if chunk["index"] == index) == said
        offsets = [
            chunk["logprobs"]["text_offset"] for chunk in chunks if chunk["index"] == index and chunk["logprobs"]
        ]
        assert [offset for part in offsets for offset in part] == [0, 1, 2]


def test_usage_so_far_is_in_every_chunk_that_asks_for_it() -> None:
    prompt = Delta("", (), prompt=PromptEcho("ab", (5, 6), TopLogprob(5, 0.0, "a")))
    chunks = streamed(
        AnswerShape("chat", usage=True, continuous_usage=True), prompt, Delta("a", (1, 2)), Delta("b", (3,)), END
    )
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks[1:3]] == [2, 3]
    assert chunks[1]["usage"]["prompt_tokens"] == 2


@pytest.mark.parametrize("fields", [{}, {"logprobs": True}, {"token_ids": True}, {"n": 2}])
@pytest.mark.parametrize(
    ("kind", "whole_model", "chunk_model"),
    [("chat", ChatCompletion, ChatCompletionChunk), ("text", TextCompletion, TextCompletionChunk)],
)
def test_answers_have_the_documented_shapes(kind: Any, whole_model: Any, chunk_model: Any, fields: Any) -> None:
    shape = AnswerShape(kind, usage=True, **fields)
    thoughts = "Hm" if kind == "chat" else ""
    echo = PromptEcho("ab", (5, 6), TopLogprob(5, 0.0, "a"))
    events = (Delta("", (), prompt=echo), Delta("Hi", (7,), thoughts, logprobs=(token("Hi", -1.0),)), END)
    whole_model.model_validate(whole(shape, *events))
    for chunk in streamed(shape, *events):
        chunk_model.model_validate(chunk)
