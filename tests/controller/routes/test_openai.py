import json
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest
from arena import Arena
from fake_worker import FakeWorker, words

from wire.errors import ErrorCode

HELLO = [{"role": "user", "content": "hello"}]
JSON = {"Content-Type": "application/json"}


def _body(**changes: Any) -> bytes:
    return json.dumps({"model": "alpha", "messages": HELLO, **changes}).encode()


def _without(field: str) -> bytes:
    return json.dumps({key: value for key, value in json.loads(_body()).items() if key != field}).encode()


MALFORMED: dict[str, tuple[bytes, int, str]] = {
    "empty body": (b"", 400, "invalid_json"),
    "not JSON": (b"{model: alpha}", 400, "invalid_json"),
    "cut off": (_body()[:-2], 400, "invalid_json"),
    "two values": (_body() + b"{}", 400, "invalid_json"),
    "bad UTF-8": (b'{"model": "\xff\xfe"}', 400, "invalid_json"),
    "UTF-16": (_body().decode().encode("utf-16"), 400, "invalid_json"),
    "lone surrogate": (_body(messages=[{"role": "user", "content": "\ud800"}]), 400, "invalid_json"),
    "NUL character": (_body(messages=[{"role": "user", "content": "a\x00b"}]), 400, "invalid_json"),
    "NaN": (b'{"model":"alpha","messages":[{"role":"user","content":"x"}],"temperature":NaN}', 400, "invalid_json"),
    "infinity": (
        b'{"model":"alpha","messages":[{"role":"user","content":"x"}],"top_p":-Infinity}',
        400,
        "invalid_json",
    ),
    "overflowing float": (_body().replace(b'"alpha"', b'"alpha","temperature":1e999'), 400, "invalid_json"),
    "huge integer": (_body().replace(b'"alpha"', b'"alpha","max_tokens":' + b"9" * 400), 400, "invalid_json"),
    "2**63 tokens": (_body(max_tokens=2**63), 400, "invalid_request"),
    "deep nesting": (b'{"model":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400, "invalid_json"),
    "a list": (b"[]", 400, "invalid_request"),
    "a string": (b'"hello"', 400, "invalid_request"),
    "null": (b"null", 400, "invalid_request"),
    "no model": (_without("model"), 400, "invalid_request"),
    "null model": (_body(model=None), 400, "invalid_request"),
    "numeric model": (_body(model=1), 400, "invalid_request"),
    "empty model": (_body(model=""), 400, "invalid_request"),
    "unknown model": (_body(model="nobody"), 404, "model_not_found"),
    "model with a line break": (_body(model="a\nb"), 404, "model_not_found"),
    "no messages": (_without("messages"), 400, "invalid_request"),
    "empty messages": (_body(messages=[]), 400, "invalid_request"),
    "messages is a string": (_body(messages="hello"), 400, "invalid_request"),
    "a message is a string": (_body(messages=["hello"]), 400, "invalid_request"),
    "unknown role": (_body(messages=[{"role": "wizard", "content": "x"}]), 400, "invalid_request"),
    "missing role": (_body(messages=[{"content": "x"}]), 400, "invalid_request"),
    "null content": (_body(messages=[{"role": "user", "content": None}]), 400, "invalid_request"),
    "missing content": (_body(messages=[{"role": "user"}]), 400, "invalid_request"),
    "numeric content": (_body(messages=[{"role": "user", "content": 5}]), 400, "invalid_request"),
    "part without type": (_body(messages=[{"role": "user", "content": [{"text": "x"}]}]), 400, "invalid_request"),
    "image by URL": (
        _body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]),
        400,
        "",
    ),
    "negative tokens": (_body(max_tokens=-1), 400, "invalid_request"),
    "fractional tokens": (_body(max_tokens=1.5), 400, "invalid_request"),
    "temperature too high": (_body(temperature=99), 400, "invalid_request"),
    "temperature is text": (_body(temperature="warm"), 400, "invalid_request"),
    "two answers": (_body(n=2), 400, "invalid_request"),
    "too many stops": (_body(stop=["x"] * 99), 400, "invalid_request"),
    "empty stop": (_body(stop=""), 400, "invalid_request"),
    "tools": (_body(tools=[]), 400, "unsupported_parameter"),
    "unknown parameter": (_body(frobnicate=1), 400, "unsupported_parameter"),
    "stream options without stream": (_body(stream_options={"include_usage": True}), 400, "invalid_request"),
    "too large": (_body(messages=[{"role": "user", "content": "x" * 10_000_000}]), 413, "request_too_large"),
}


@pytest.fixture
async def client(arena: Arena) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    await arena.add_worker(FakeWorker("alpha"))
    async with openai.AsyncOpenAI(base_url=arena.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_every_malformed_request_is_a_4xx_in_the_openai_shape(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    for name, (body, status, code) in MALFORMED.items():
        response = await arena.client.post(
            "/v1/chat/completions", content=body, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == status, (name, response.text)
        error = response.json()["error"]
        assert set(error) == {"message", "type", "code", "param"}, name
        assert error["message"]
        assert error["type"] == "invalid_request_error"
        assert error["code"] in ([code] if code else set(ErrorCode)), (name, error)
    assert worker.requests == []
    assert await arena.num_slots() == 0


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/chat/completions/", 404, "not_found"),
        ("GET", "/v1/models/nobody", 404, "model_not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/openapi.json", 404, "not_found"),
    ],
)
async def test_wrong_paths_and_methods_have_the_openai_shape_too(
    arena: Arena, method: str, path: str, status: int, code: str
) -> None:
    response = await arena.client.request(method, path)

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_only_json_is_read(arena: Arena, content_type: str) -> None:
    response = await arena.client.post("/v1/chat/completions", content=_body(), headers={"Content-Type": content_type})

    assert response.status_code == 400
    assert "application/json" in response.json()["error"]["message"]


async def test_null_parameters_mean_absent(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    nothing = dict.fromkeys(("temperature", "top_p", "max_tokens", "stop", "seed", "stream", "n", "user"))

    response = await arena.client.post("/v1/chat/completions", content=_body(**nothing), headers=JSON)

    assert response.status_code == 200
    assert worker.requests[0].sampling.temperature is None


async def test_the_openai_client_chats(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="alpha", messages=HELLO)  # type: ignore[arg-type]

    assert answer.choices[0].message.content == words(5)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 12


async def test_the_openai_client_streams_with_usage(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="alpha",
        messages=HELLO,  # type: ignore[arg-type]
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]

    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == words(5)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


async def test_the_openai_client_completes_text(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="alpha", prompt="Once", max_tokens=3)

    assert answer.choices[0].text == words(3)
    assert answer.choices[0].finish_reason == "length"


async def test_the_openai_client_lists_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["alpha"]
    assert (await client.models.retrieve("alpha")).id == "alpha"


async def test_a_model_whose_workers_are_away_is_busy_and_not_unknown(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    await arena.remove(worker)

    response = await arena.client.post("/v1/chat/completions", content=_body(), headers=JSON)

    assert response.status_code == 503
    assert response.json()["error"]["code"] == "no_worker_available"
    assert int(response.headers["retry-after"]) >= 1


async def test_a_body_in_pieces_without_a_length_is_cut_off_at_the_limit(arena: Arena) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for _ in range(100):
            yield b" " * 50_000

    response = await arena.client.post("/v1/chat/completions", content=pieces(), headers=JSON)

    assert response.status_code == 413
