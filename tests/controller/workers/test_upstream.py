"""One request to one worker: what a slow reader does to it, and what happens to the connection afterwards."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from fake_worker import FakeWorker, words
from running import running_app

from controller.store.keys import Keys
from controller.workers.routing_table import RoutingTable, Worker
from controller.workers.upstream import Delta, Finished, Upstream
from controller.workers.worker_http import WorkerHttp
from wire.chat import Usage
from wire.sse import SseEvent, encode
from wire.workers import Capacity, GenerateFinished, GenerateRequest, Load, ModelCard

CARD = ModelCard(
    name="alpha", revision="r", architecture="llama", num_parameters=1, dtype="float32", context_length=4096
)
REQUEST = GenerateRequest(request_id="r", epoch=0, prompt="hello")
USAGE = Usage(prompt_tokens=1, completion_tokens=0, total_tokens=1)
FINISHED = encode(SseEvent(GenerateFinished(finish_reason="stop", usage=USAGE).model_dump_json(), "finished"))


@asynccontextmanager
async def _upstream() -> AsyncGenerator[Upstream, None]:
    http = WorkerHttp("token", 5.0)
    http.start()
    table = RoutingTable(cast(Any, None), Keys("unused"), refresh_s=60.0)  # never refreshed
    yield Upstream(http, table, first_token_timeout_s=20.0, token_timeout_s=2.0)
    await http.stop()


def _worker(url: str) -> Worker:
    return Worker("w", 1, "boot", url, "ready", CARD, Capacity(max_running=1, max_queued=0, kv_tokens=64), Load(), 0, 0)


def _fake() -> FakeWorker:
    fake = FakeWorker("alpha", num_tokens=5, delay_s=0.05)
    fake.token = "token"
    return fake


async def _is_finished(upstream: Upstream, url: str) -> bool:
    return [type(event) async for event in upstream.attempt(_worker(url), REQUEST)][-1] is Finished


async def test_a_slow_reader_is_not_taken_for_a_worker_that_stands_still() -> None:
    async with running_app(_fake().app) as url, _upstream() as upstream:
        text, is_finished = "", False
        async for event in upstream.attempt(_worker(url), REQUEST):
            if isinstance(event, Delta) and text == words(1):
                await asyncio.sleep(2.5)  # the rest comes meanwhile and waits to be read
            text += event.text if isinstance(event, Delta) else ""
            is_finished = isinstance(event, Finished)

    assert (text, is_finished) == (words(5), True)


async def test_answers_one_after_the_other_come_over_one_connection() -> None:
    fake = _fake()
    async with running_app(fake.app) as url, _upstream() as upstream:
        for _ in range(3):
            assert await _is_finished(upstream, url)
            await asyncio.sleep(0.1)  # the end of the response follows that of the answer

    assert len(fake.requests) == 3
    assert len(fake.clients) == 1


async def test_an_answer_that_is_left_early_closes_its_connection() -> None:
    fake = _fake()
    async with running_app(fake.app) as url, _upstream() as upstream:
        events = upstream.attempt(_worker(url), REQUEST)
        while not isinstance(await anext(events), Delta):
            pass
        await events.aclose()
        async with asyncio.timeout(10):
            while fake.num_open:
                await asyncio.sleep(0.01)

    assert fake.num_aborted == 1


async def test_a_kept_connection_that_the_worker_closes_as_it_is_used_costs_nothing() -> None:
    num_requests: list[int] = []  # by connection

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(num_requests)
        num_requests.append(0)
        while body := await _read_request(reader):
            num_requests[number] += 1
            assert body.startswith(b"{")
            if num_requests[number] == 2:
                break
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(FINISHED)
            writer.write(head + FINISHED)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with _upstream() as upstream:
        for _ in range(2):
            assert await _is_finished(upstream, f"http://127.0.0.1:{port}")
    server.close()

    assert num_requests == [2, 1]


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
    except asyncio.IncompleteReadError:
        return b""
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.partition(b":")[2]))
