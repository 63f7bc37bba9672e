"""A client that leaves or stops reading, at any phase, leaves nothing behind."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from model_worker.echo_engine import EchoEngine
from model_worker.engine_protocol import Engine

Serve = Callable[..., Any]


def is_idle(engine: Engine) -> bool:
    load = engine.load()
    return (load.running, load.waiting, load.queued_tokens, load.kv_bytes_used) == (0, 0, 0, 0)


LONG = {"ignore_eos": True, "max_tokens": 4000}


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_leaving_in_mid_answer_aborts_it(
    serve: Serve, chat_body: Any, eventually: Any, is_streamed: bool
) -> None:
    engine = EchoEngine(tokens_per_s=100)
    async with serve(engine) as served:
        body = chat_body(stream=is_streamed, **LONG)
        request = asyncio.create_task(served.client.post("/v1/chat/completions", json=body))
        await eventually(lambda: engine.load().kv_bytes_used > 0)
        request.cancel()
        await eventually(lambda: is_idle(engine))
        counted = 'agon_requests_aborted_total{model_name="echo"} 1.0'
        await eventually(lambda: counted in served.models.metrics.render().decode())


async def test_leaving_the_queue_gives_the_place_back(serve: Serve, chat_body: Any, eventually: Any) -> None:
    engine = EchoEngine(tokens_per_s=100, max_running=1)
    async with serve(engine) as served:
        requests = [
            asyncio.create_task(served.client.post("/v1/chat/completions", json=chat_body(stream=True, **LONG)))
            for _ in range(3)
        ]
        await eventually(lambda: engine.load().waiting == 2)
        for request in requests:
            request.cancel()
        await eventually(lambda: is_idle(engine))


async def test_many_clients_leaving_at_random_phases_leak_nothing(
    serve: Serve, chat_body: Any, eventually: Any
) -> None:
    engine = EchoEngine(tokens_per_s=400, max_running=4)
    async with serve(engine) as served:

        async def come_and_go(number: int) -> None:
            path = "/internal/generate" if number % 3 == 0 else "/v1/chat/completions"
            messages = chat_body()["messages"]
            body: dict[str, Any] = (
                {"request_id": str(number), "messages": messages, "sampling": LONG}
                if number % 3 == 0
                else chat_body(stream=number % 3 == 1, **LONG)
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01 + 0.007 * (number % 13)):
                    await served.client.post(path, json=body)

        await asyncio.gather(*(come_and_go(number) for number in range(60)))
        await eventually(lambda: is_idle(engine))
        async with asyncio.timeout(30):
            await served.worker.wait_until_idle()
        assert (await served.client.post("/v1/chat/completions", json=chat_body())).status_code == 200


async def test_client_that_stops_reading_is_dropped(serve: Serve, chat_body: Any, eventually: Any) -> None:
    engine = EchoEngine(tokens_per_s=1e6, context_length=200_000)
    async with serve(engine, slow_client_s=0.3) as served:
        body = json.dumps(chat_body(stream=True, ignore_eos=True, max_tokens=100_000)).encode()
        host, port = httpx.URL(served.url).host, httpx.URL(served.url).port
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, port))
        _, writer = await asyncio.open_connection(sock=connection, limit=1024)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        await eventually(lambda: engine.load().running == 1)
        await eventually(lambda: is_idle(engine), timeout_s=60)
        writer.close()
