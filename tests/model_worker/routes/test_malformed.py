"""Whatever a client sends, it gets a 4xx with a code in the OpenAI shape: never a 500, never a hang."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

Serve = Callable[..., Any]
InProcess = Callable[..., httpx.AsyncClient]

HELLO = {"role": "user", "content": "hello"}


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "echo", "messages": [HELLO], **changes}


def message(**changes: Any) -> dict[str, Any]:
    return chat(messages=[{**HELLO, **changes}])


BODIES: dict[str, Any] = {
    "empty object": {},
    "array": [],
    "string": "hello",
    "null": None,
    "no model": {"messages": [HELLO]},
    "null model": chat(model=None),
    "number as model": chat(model=7),
    "empty model": chat(model=""),
    "no messages": {"model": "echo"},
    "null messages": chat(messages=None),
    "empty messages": chat(messages=[]),
    "messages as text": chat(messages="hello"),
    "message as text": chat(messages=["hello"]),
    "null message": chat(messages=[None]),
    "too many messages": chat(messages=[HELLO] * 1025),
    "unknown role": message(role="wizard"),
    "missing role": chat(messages=[{"content": "hello"}]),
    "null role": message(role=None),
    "tool role": message(role="tool"),
    "null content": message(content=None),
    "missing content": chat(messages=[{"role": "user"}]),
    "number as content": message(content=3),
    "object as content": message(content={"text": "x"}),
    "part without type": message(content=[{"text": "x"}]),
    "part without text": message(content=[{"type": "text"}]),
    "part with null text": message(content=[{"type": "text", "text": None}]),
    "image part": message(content=[{"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]),
    "part as text": message(content=["x"]),
    "unknown field in a message": message(tool_calls=[]),
    "negative temperature": chat(temperature=-1),
    "huge temperature": chat(temperature=1e308),
    "temperature as text": chat(temperature="hot"),
    "temperature as list": chat(temperature=[1]),
    "zero top_p": chat(top_p=0),
    "top_p above one": chat(top_p=1.5),
    "negative top_k": chat(top_k=-1),
    "zero max_tokens": chat(max_tokens=0),
    "negative max_tokens": chat(max_tokens=-5),
    "huge max_tokens": chat(max_tokens=10**15),
    "max_tokens beyond the context": chat(max_tokens=1_000_000),
    "broken max_tokens": chat(max_tokens=1.5),
    "seed beyond 64 bits": chat(seed=2**64),
    "too many stops": chat(stop=["x"] * 17),
    "empty stop": chat(stop=""),
    "empty stop in a list": chat(stop=[""]),
    "number as stop": chat(stop=5),
    "null in stop": chat(stop=[None]),
    "long stop": chat(stop="x" * 257),
    "negative stop token": chat(stop_token_ids=[-1]),
    "stop tokens as text": chat(stop_token_ids="abc"),
    "stream as text": chat(stream="perhaps"),
    "stream options without stream": chat(stream_options={"include_usage": True}),
    "stream options as text": chat(stream=True, stream_options="yes"),
    "several answers": chat(n=2),
    "logprobs": chat(logprobs=True),
    "tools": chat(tools=[]),
    "functions": chat(functions=[{}]),
    "json mode": chat(response_format={"type": "json_object"}),
    "frequency penalty beyond its range": chat(frequency_penalty=2.5),
    "presence penalty as text": chat(presence_penalty="much"),
    "repetition penalty of zero": chat(repetition_penalty=0),
    "bias beyond its range": chat(logit_bias={"5": 101}),
    "bias of no token": chat(logit_bias={"five": 1}),
    "bias of a negative token": chat(logit_bias={"-5": 1}),
    "biases as a list": chat(logit_bias=[5]),
    "too many biases": chat(logit_bias={str(i): 1 for i in range(301)}),
    "unknown parameter": chat(magic=True),
    "min_tokens above max_tokens": chat(min_tokens=2_000_000),
}

RAW: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"hello",
    "cut off": b'{"model": "echo", "messages": [',
    "NaN": b'{"model": "echo", "temperature": NaN}',
    "infinity": b'{"model": "echo", "temperature": Infinity}',
    "number too large": b'{"model": "echo", "temperature": 1e999}',
    "integer too large": b'{"model": "echo", "seed": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"model": "\xff\xfe"}',
    "lone surrogate": rb'{"model": "echo", "messages": [{"role": "user", "content": "\ud800"}]}',
    "surrogate as key": rb'{"\udfff": 1}',
    "NUL": rb'{"model": "echo", "messages": [{"role": "user", "content": "a\u0000b"}]}',
    "deeply nested": b'{"model": ' + b"[" * 100_000,
    "byte order mark": b"\xef\xbb\xbf{}",
    "two objects": b"{} {}",
    "trailing comma": b'{"model": "echo",}',
    "duplicate keys hide nothing": b'{"model": "echo", "model": null}',
}


def assert_refused(answer: Any) -> None:
    assert 400 <= answer.status_code < 500, answer.text
    error = answer.json()["error"]
    assert error["code"]
    assert error["message"]
    assert error["type"] == "invalid_request_error"
    assert set(error) == {"message", "type", "code", "param"}


async def test_malformed_bodies_are_refused(in_process: InProcess) -> None:
    bodies = {name: json.dumps(body).encode() for name, body in BODIES.items()} | RAW
    async with in_process() as client:
        for name, body in bodies.items():
            for path in ("/v1/chat/completions", "/v1/completions", "/internal/generate"):
                answer = await client.post(path, content=body)
                assert answer.status_code < 500, (name, path, answer.text)
                assert_refused(answer)


@pytest.mark.parametrize(
    "prompt", [None, "", [], ["a", "b"], [1, 2], [[1, 2]], {"text": "x"}, 5, [None]], ids=lambda value: repr(value)
)
async def test_malformed_prompts_are_refused(in_process: InProcess, prompt: Any) -> None:
    async with in_process() as client:
        assert_refused(await client.post("/v1/completions", json={"model": "echo", "prompt": prompt}))


@pytest.mark.parametrize(
    "change",
    [
        {"request_id": ""},
        {"request_id": "x" * 129},
        {"request_id": None},
        {"epoch": "one"},
        {"messages": None},
        {"prompt": "both"},
        {"resume_token_ids": [-1]},
        {"resume_token_ids": [2**40]},
        {"resume_token_ids": ["a"]},
        {"sampling": {"temperature": -1}},
        {"sampling": {"unknown": 1}},
        {"sampling": None},
    ],
    ids=repr,
)
async def test_malformed_internal_requests_are_refused(in_process: InProcess, change: dict[str, Any]) -> None:
    body = {"request_id": "r", "messages": [HELLO], **change}
    async with in_process() as client:
        assert_refused(await client.post("/internal/generate", json=body))


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
async def test_other_content_types_are_refused(in_process: InProcess, content_type: str) -> None:
    async with in_process() as client:
        headers = {"Content-Type": content_type}
        answer = await client.post("/v1/chat/completions", content=json.dumps(chat()), headers=headers)
    assert_refused(answer)


async def test_null_parameters_mean_absent(in_process: InProcess) -> None:
    names = ("max_tokens", "temperature", "top_p", "stop", "stream", "n", "seed", "user", "stream_options", "logprobs")
    async with in_process() as client:
        answer = await client.post("/v1/chat/completions", json=chat(**dict.fromkeys(names)))
    assert answer.status_code == 200


async def test_announced_huge_body_is_refused_without_being_read(serve: Serve) -> None:
    async with serve() as served:
        answer = await served.client.post("/v1/chat/completions", content=b" " * 10_000_000)
    assert_refused(answer)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


async def test_huge_body_of_unknown_length_is_cut_off(serve: Serve) -> None:

    async def chunks() -> Any:
        for _ in range(320):
            yield b" " * 65_536

    async with serve() as served:
        answer = await served.client.post("/v1/chat/completions", content=chunks())
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/models/", 404, "model_not_found"),
        ("POST", "/v1/embeddings", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/openapi.json", 404, "not_found"),
        ("GET", "/internal", 404, "not_found"),
        ("GET", "/%00", 404, "not_found"),
        ("GET", "/v1/models/%ff%fe", 404, "model_not_found"),
        ("BREW", "/v1/models", 405, "method_not_allowed"),
    ],
)
async def test_wrong_paths_and_methods_get_the_same_shape(
    in_process: InProcess, method: str, path: str, status: int, code: str
) -> None:
    async with in_process() as client:
        answer = await client.request(method, path)
    assert_refused(answer)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
