"""The OpenAI schema: what is accepted and refused, and the chunks of an answer."""

import json
from typing import Any

import pytest

from wire.chat import Usage
from wire.errors import ApiError, ErrorCode
from wire.openai.replies import ChatCompletion, ChatCompletionChunk, TextCompletion, TextCompletionChunk
from wire.openai.requests import ChatCompletionRequest, CompletionRequest
from wire.openai.shaping import CompletionShaper
from wire.strict_json import parse_model

HELLO = {"role": "user", "content": "Hello"}
USAGE = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5)


def chat(**fields: Any) -> ChatCompletionRequest:
    body = {"model": "finch", "messages": [HELLO], **fields}
    return parse_model(ChatCompletionRequest, json.dumps(body).encode())


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
        ({"tools": []}, "tools"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
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
    assert chat(stream=True, stream_options={"include_usage": True}).wants_usage
    assert not chat(stream=True).wants_usage


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


@pytest.mark.parametrize(("stop", "expected"), [("a", ("a",)), (["a", "b"], ("a", "b")), (None, None)])
def test_stop_is_one_string_or_a_list(stop: Any, expected: Any) -> None:
    assert chat(stop=stop).sampling().stop == expected


@pytest.mark.parametrize("stop", ["", [""], ["x"] * 17, 5, ["x" * 257]])
def test_an_unusable_stop_is_refused(stop: Any) -> None:
    assert refusal(stop=stop).status == 400


def test_a_completion_takes_one_prompt_in_either_shape() -> None:
    for prompt in ("Once", ["Once"]):
        body = json.dumps({"model": "finch", "prompt": prompt}).encode()
        assert parse_model(CompletionRequest, body).prompt == "Once"
    with pytest.raises(ApiError):
        parse_model(CompletionRequest, json.dumps({"model": "finch", "prompt": ["a", "b"]}).encode())


def test_a_chat_stream_opens_with_the_role_and_closes_with_the_reason() -> None:
    shaper = CompletionShaper(kind="chat", completion_id="c-1", model="finch", created=1)
    first = shaper.first_chunk()
    assert first is not None
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert shaper.text_chunk("Hi")["choices"][0]["delta"] == {"content": "Hi"}
    assert shaper.finish_chunk("length")["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "length",
    }
    assert shaper.usage_chunk(USAGE)["choices"] == []
    assert shaper.usage_chunk(USAGE)["usage"]["total_tokens"] == 5


def test_whole_answers_have_the_shape_of_their_kind() -> None:
    whole = CompletionShaper(kind="chat", completion_id="c", model="finch", created=1).whole("Hi", "stop", USAGE)
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Hi"}
    text = CompletionShaper(kind="text", completion_id="c", model="finch", created=1).whole("Hi", "stop", USAGE)
    assert text["object"] == "text_completion"
    assert text["choices"][0]["text"] == "Hi"


def test_an_aborted_answer_says_stop_since_clients_know_no_abort() -> None:
    whole = CompletionShaper(kind="chat", completion_id="c", model="finch", created=1).whole("Hi", "abort", USAGE)
    assert whole["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("kind", "whole", "chunk"),
    [("chat", ChatCompletion, ChatCompletionChunk), ("text", TextCompletion, TextCompletionChunk)],
)
def test_answers_have_the_documented_shapes(kind: Any, whole: Any, chunk: Any) -> None:
    shaper = CompletionShaper(kind=kind, completion_id="c", model="finch", created=1)
    whole.model_validate(shaper.whole("Hi", "length", USAGE))
    chunks = [shaper.first_chunk(), shaper.text_chunk("Hi"), shaper.finish_chunk("stop"), shaper.usage_chunk(USAGE)]
    for made in chunks:
        if made is not None:
            chunk.model_validate(made)
