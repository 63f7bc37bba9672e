import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from model_worker.echo_engine import EchoEngine

Serve = Callable[..., Any]
Body = Callable[..., dict[str, Any]]


def openai_client(served: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)


async def test_models_are_listed(serve: Serve) -> None:
    async with serve() as served:
        models = (await served.client.get("/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["echo"]
    assert models["data"][0]["max_model_len"] == 4096


async def test_model_with_a_slash_in_its_name_is_found(serve: Serve) -> None:
    async with serve(EchoEngine(), model="org/name=x") as served:
        assert (await served.client.get("/v1/models/org/name")).json()["id"] == "org/name"
        assert (await served.client.get("/v1/models/org")).json()["error"]["code"] == "model_not_found"


async def test_chat_is_answered_whole(serve: Serve, chat_body: Body) -> None:
    async with serve() as served:
        answer = (await served.client.post("/v1/chat/completions", json=chat_body())).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "one two three four"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["total_tokens"] == 8


async def test_completion_is_answered_whole(serve: Serve) -> None:
    async with serve() as served:
        body = {"model": "echo", "prompt": "one two", "max_tokens": 1}
        answer = (await served.client.post("/v1/completions", json=body)).json()
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["text"] == "one"
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_chat_is_streamed_in_deltas(serve: Serve, chat_body: Body, read_events: Any) -> None:
    async with serve() as served:
        body = chat_body(stream=True, stream_options={"include_usage": True})
        async with served.client.stream("POST", "/v1/chat/completions", json=body) as response:
            events = [event.data async for event in read_events(response)]
    assert response.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert text == "one two three four"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == 4
    assert chunks[-1]["choices"] == []
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_broken_stream_ends_in_one_error_and_without_done(
    serve: Serve, chat_body: Body, read_events: Any
) -> None:
    async with (
        serve(EchoEngine(tokens_per_s=5000, fail_after=2)) as served,
        served.client.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        events = [event.data async for event in read_events(response)]
    assert response.status_code == 200
    assert json.loads(events[-1])["error"]["code"] == "worker_failed"
    assert "[DONE]" not in events


async def test_broken_whole_answer_is_an_error(serve: Serve, chat_body: Body) -> None:
    async with serve(EchoEngine(tokens_per_s=5000, fail_after=2)) as served:
        answer = await served.client.post("/v1/chat/completions", json=chat_body())
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_failed")


async def test_refusal_of_a_stream_is_an_ordinary_error_response(serve: Serve, chat_body: Body) -> None:
    async with serve(EchoEngine(context_length=4)) as served:
        answer = await served.client.post("/v1/chat/completions", json=chat_body(stream=True))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_unknown_model_is_not_found(serve: Serve, chat_body: Body) -> None:
    async with serve() as served:
        answer = await served.client.post("/v1/chat/completions", json=chat_body(model="other"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def test_request_before_the_model_is_loaded_is_told_to_come_back(
    make_settings: Any, serve_app: Any, chat_body: Body
) -> None:
    import httpx

    from model_worker.app import create_app

    app = create_app(make_settings())
    async with serve_app(app) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        answer = await client.post("/v1/chat/completions", json=chat_body())
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert (await client.get("/health")).json() == {"status": "ok", "state": "starting"}
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/v1/models")).status_code == 200


async def test_openai_client_chats_streaming_and_not(serve: Serve) -> None:
    async with serve() as served, openai_client(served) as client:
        whole = await client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": "a b c"}], temperature=0, max_tokens=2
        )
        stream = await client.chat.completions.create(
            model="echo",
            messages=[{"role": "developer", "content": "be brief"}, {"role": "user", "content": "a b c"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        models = await client.models.list()
        text = await client.completions.create(model="echo", prompt="x y")
    assert whole.choices[0].message.content == "a b"
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 2
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "a b c"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 5
    assert models.data[0].id == "echo"
    assert text.choices[0].text == "x y"


async def test_openai_client_raises_typed_errors(serve: Serve) -> None:
    async with serve(EchoEngine(tokens_per_s=5000, fail_after=1)) as served, openai_client(served) as client:
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="no", messages=[{"role": "user", "content": "a"}])
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="echo", messages=[])
        stream = await client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": "a b"}], stream=True
        )
        with pytest.raises(openai.APIError, match="broke off"):
            async for _ in stream:
                pass


async def test_many_requests_at_once_are_all_answered(serve: Serve, chat_body: Body) -> None:
    async with serve(EchoEngine(tokens_per_s=2000, max_running=8)) as served:
        answers = await asyncio.gather(
            *(served.client.post("/v1/chat/completions", json=chat_body(f"say {number}")) for number in range(64))
        )
    texts = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
    assert texts == [f"say {number}" for number in range(64)]


async def test_full_queue_refuses_at_once_with_retry_after(serve: Serve, chat_body: Body, eventually: Any) -> None:
    engine = EchoEngine(tokens_per_s=0.01, max_running=1, max_queued=2)
    async with serve(engine) as served:
        requests = [asyncio.create_task(served.client.post("/v1/chat/completions", json=chat_body())) for _ in range(8)]
        await eventually(lambda: sum(request.done() for request in requests) == 5)
        assert (engine.load().running, engine.load().waiting) == (1, 2)
        refused = [request.result() for request in requests if request.done()]
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
    assert {answer.status_code for answer in refused} == {503}
    assert {answer.json()["error"]["code"] for answer in refused} == {"queue_full"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
