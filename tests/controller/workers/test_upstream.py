"""One request to one worker: its time limits, and what happens to the connection afterwards."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest

from controller.store.keys import Keys
from controller.store.store import Store
from controller.workers.routing_table import RoutingTable, Worker
from controller.workers.upstream import CALM_S, PAUSE_S, VANISHED_S, Opened, Trouble, Upstream
from controller.workers.worker_http import WorkerHttp
from tests.controller.support.arena import eventually
from tests.controller.support.fake_worker import FakeWorker, words
from tests.controller.support.loop_clock import LoopClock
from tests.controller.support.running import running_app
from wire.answers import Delta, Finished
from wire.chat import Usage
from wire.ids import WorkerId
from wire.sse import SseEvent, encode
from wire.workers import Capacity, GenerateFinished, GenerateRequest, Load, ModelCard

CARD = ModelCard(
    name="alpha", revision="r", architecture="llama", num_parameters=1, dtype="float32", context_length=4096
)
CAPACITY = Capacity(max_running=1, max_queued=0, kv_tokens=64)
REQUEST = GenerateRequest(request_id="r", epoch=0, prompt="hello")
USAGE = Usage(prompt_tokens=1, completion_tokens=0, total_tokens=1)
FINISHED = encode(SseEvent(GenerateFinished(finish_reason="stop", usage=USAGE).model_dump_json(), "finished"))


TOKEN_TIMEOUT_S = 2.0


class _Registry:
    """Stands for the store: what a refresh of the routing table reads."""

    def __init__(self) -> None:
        self.boot_ids: list[str] = []  #: of the workers that are registered now

    async def run(self, script: str, *_: object) -> Any:
        assert script == "routing_table"
        return 1, [], [["w", "1", "0", self._fields(boot_id)] for boot_id in self.boot_ids]

    def _fields(self, boot_id: str) -> list[str]:
        values = {"capacity": CAPACITY.model_dump_json(), "card": CARD.model_dump_json(), "load": "{}"}
        values |= {"boot_id": boot_id, "epoch": "7", "url": "", "state": "ready", "beat": "0"}
        return [part for pair in values.items() for part in pair]


@dataclass
class _Parts:
    upstream: Upstream
    table: RoutingTable
    registry: _Registry
    http: WorkerHttp

    async def until_connections_are_idle(self) -> None:
        """The end of a response follows the end of its answer; then aiohttp keeps the connection."""
        connector = self.http.session.connector
        assert connector is not None
        await eventually(lambda: not connector._acquired)


@asynccontextmanager
async def _parts() -> AsyncGenerator[_Parts, None]:
    http, registry = WorkerHttp("token", 5.0), _Registry()
    http.start()
    table = RoutingTable(cast(Store, registry), Keys("unused"))  # refreshed by the tests alone
    upstream = Upstream(http, table, first_token_timeout_s=20.0, token_timeout_s=TOKEN_TIMEOUT_S)
    try:
        yield _Parts(upstream, table, registry, http)
    finally:
        await http.stop()


def _worker(url: str) -> Worker:
    return Worker(WorkerId("w"), 1, "boot", url, "ready", CARD, CAPACITY, Load(), 0, 0)


def _fake() -> FakeWorker:
    fake = FakeWorker("alpha", num_tokens=5)
    fake.token = "token"
    fake.epoch = 0
    return fake


async def _is_finished(upstream: Upstream, url: str) -> bool:
    return [type(event) async for event in upstream.attempt(_worker(url), REQUEST)][-1] is Finished


async def test_a_slow_reader_is_not_taken_for_a_worker_that_stands_still() -> None:
    fake, text, is_finished = _fake(), "", False
    async with running_app(fake.app) as url, _parts() as parts:
        clock = LoopClock()
        async for event in parts.upstream.attempt(_worker(url), REQUEST):
            if isinstance(event, Delta) and text == "":
                await eventually(lambda: fake.num_open == 0)  # the rest has come and waits to be read
                await clock.advance(1.5 * TOKEN_TIMEOUT_S)
            text += event.text if isinstance(event, Delta) else ""
            is_finished = isinstance(event, Finished)

    assert (text, is_finished) == (words(5), True)


async def _next_token(events: AsyncGenerator[Any, None]) -> Any:
    while not isinstance(event := await anext(events), Delta):
        pass
    return event


async def test_a_worker_that_stands_still_is_left_after_the_token_timeout() -> None:
    fake = _fake()
    fake.hang_at = 1
    async with running_app(fake.app) as url, _parts() as parts:
        clock = LoopClock()
        events = parts.upstream.attempt(_worker(url), REQUEST)
        await _next_token(events)
        waiting = asyncio.create_task(_next_token(events))
        await clock.advance(0.5 * TOKEN_TIMEOUT_S)
        assert not waiting.done()
        await clock.advance(TOKEN_TIMEOUT_S)

        with pytest.raises(Trouble) as trouble:
            await waiting

    assert (trouble.value.reason, trouble.value.blame) == ("no token in time", True)


async def test_a_silent_worker_is_left_some_time_after_its_registration_expired() -> None:
    fake = _fake()
    fake.hang_at = 1
    async with running_app(fake.app) as url, _parts() as parts:
        clock = LoopClock()
        events = parts.upstream.attempt(_worker(url), REQUEST)
        await _next_token(events)
        waiting = asyncio.create_task(_next_token(events))
        await asyncio.sleep(0)
        await parts.table.refresh()  # finds no worker
        await clock.advance(0.5 * VANISHED_S)
        await parts.table.refresh()
        assert not waiting.done()
        await clock.advance(VANISHED_S)
        await parts.table.refresh()

        with pytest.raises(Trouble, match="worker vanished"):
            await waiting


async def test_a_worker_that_speaks_is_not_cut_off_without_a_registration() -> None:
    """Heartbeats fail while the store is away, and the registration ends; tokens show that the worker lives."""
    fake, texts = _fake(), []
    fake.num_tokens, fake.delay_s = 8, 0.6 * VANISHED_S
    async with running_app(fake.app) as url, _parts() as parts:
        clock = LoopClock()

        async def read() -> None:
            async for event in parts.upstream.attempt(_worker(url), REQUEST):
                texts.append(event.text if isinstance(event, Delta) else "")

        reading = asyncio.create_task(read())
        for number in range(8):
            await eventually(lambda number=number: reading.done() or "".join(texts) == words(number + 1))
            await parts.table.refresh()  # finds no worker
            await clock.advance(fake.delay_s)
        await reading

    assert "".join(texts) == words(8)


async def test_after_a_pause_without_the_store_silent_workers_get_time_to_register_again() -> None:
    fake = _fake()
    fake.hang_at = 1
    async with running_app(fake.app) as url, _parts() as parts:
        clock = LoopClock()
        await parts.table.refresh()
        events = parts.upstream.attempt(_worker(url), REQUEST.model_copy(update={"epoch": 0}))
        await _next_token(events)
        waiting = asyncio.create_task(_next_token(events))
        await clock.advance(1.01 * PAUSE_S)
        for _ in range(3):
            await parts.table.refresh()  # finds no worker
            await clock.advance(0.6 * VANISHED_S)
        assert not waiting.done()
        await clock.advance(CALM_S - PAUSE_S)
        await parts.table.refresh()
        await clock.advance(1.2 * VANISHED_S)
        await parts.table.refresh()

        with pytest.raises(Trouble, match=r"worker vanished|no token in time"):
            await waiting


async def test_a_worker_that_registers_anew_while_it_answers_is_not_cut_off() -> None:
    """A controller that stood still missed its heartbeats; the answer is all right."""
    fake = _fake()
    fake.may_speak.clear()
    async with running_app(fake.app) as url, _parts() as parts:
        clock = LoopClock()
        events = parts.upstream.attempt(_worker(url), REQUEST)
        assert isinstance(await anext(events), Opened)
        waiting = asyncio.create_task(_next_token(events))
        await asyncio.sleep(0)
        await parts.table.refresh()  # finds no worker
        parts.registry.boot_ids = ["boot"]  # the same start of it, under another epoch
        await clock.advance(1.2 * VANISHED_S)
        await parts.table.refresh()
        assert not waiting.done()
        fake.may_speak.set()

        assert (await waiting).text == words(1)
        assert [type(event) async for event in events][-1] is Finished


async def test_answers_one_after_the_other_come_over_one_connection() -> None:
    fake = _fake()
    async with running_app(fake.app) as url, _parts() as parts:
        for _ in range(3):
            assert await _is_finished(parts.upstream, url)
            await parts.until_connections_are_idle()

    assert len(fake.requests) == 3
    assert len(fake.clients) == 1


async def test_an_answer_that_is_left_early_closes_its_connection() -> None:
    fake = _fake()
    fake.hang_at = 1
    async with running_app(fake.app) as url, _parts() as parts:
        events = parts.upstream.attempt(_worker(url), REQUEST)
        await _next_token(events)
        await events.aclose()
        await eventually(lambda: fake.num_open == 0)

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
    async with _parts() as parts:
        for _ in range(2):
            assert await _is_finished(parts.upstream, f"http://127.0.0.1:{port}")
    server.close()

    assert num_requests == [2, 1]


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
    except asyncio.IncompleteReadError:
        return b""
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.partition(b":")[2]))


class _OneAtATime(FakeWorker):
    """Sends a token for each release of `may_send`."""

    may_send = asyncio.Semaphore(0)

    async def _events(self, request: GenerateRequest) -> AsyncGenerator[SseEvent, None]:
        async for event in super()._events(request):
            await self.may_send.acquire()
            yield event


async def test_thoughts_are_life_the_limit_on_the_first_token_ends_with_the_first_of_them() -> None:
    fake = _OneAtATime("alpha")
    fake.token, fake.num_thoughts = "token", 4
    async with running_app(fake.app) as url, _parts() as parts:
        upstream = Upstream(parts.http, parts.table, first_token_timeout_s=20.0, token_timeout_s=1000.0)
        clock = LoopClock()
        async with aclosing(upstream.attempt(_worker(url), REQUEST)) as events:
            assert isinstance(await anext(events), Opened)
            for number in range(fake.num_thoughts):
                waiting = asyncio.create_task(_next_token(events))
                await asyncio.sleep(0)
                await clock.advance(15)
                fake.may_send.release()
                assert await waiting == Delta("", (1000 + number,), f"t{number} ")
