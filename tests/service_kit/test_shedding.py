"""While the event loop is behind, new work is refused at once and everything else passes."""

import asyncio
import json
import time
from collections import Counter
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from service_kit.retry_after import RetryAfter
from service_kit.shedding import LAG_S, MIN_ARRIVALS, ProcessorWaits, Shedding

WORK_S = LAG_S * 2  #: of one request; it blocks the loop, as parsing and routing do


async def _busy_app(scope: Scope, receive: Receive, send: Send) -> None:
    time.sleep(WORK_S)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _shedding() -> Shedding:
    return Shedding(_busy_app, lambda scope: scope["path"] == "/work")


async def _ask(app: Shedding, path: str) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await app({"type": "http", "path": path}, receive, send)
    return sent


async def _statuses(app: Shedding, *paths: str) -> list[int]:
    answers = await asyncio.gather(*(_ask(app, path) for path in paths))
    return [answer[0]["status"] for answer in answers]


async def test_a_burst_is_refused_once_the_loop_is_behind() -> None:
    app = _shedding()
    started = time.perf_counter()
    statuses = Counter(await _statuses(app, *["/work"] * 200))

    assert statuses[200] <= MIN_ARRIVALS + 2
    assert statuses[503] == 200 - statuses[200]
    assert time.perf_counter() - started < 200 * WORK_S / 4


async def test_requests_that_belong_to_accepted_work_always_pass() -> None:
    statuses = await _statuses(_shedding(), *["/work"] * 20, *["/events"] * 5)

    assert 503 in statuses[:20]
    assert statuses[20:] == [200] * 5


async def test_requests_one_after_the_other_are_never_refused() -> None:
    app = _shedding()
    for _ in range(3 * MIN_ARRIVALS):
        assert await _statuses(app, "/work") == [200]
        await asyncio.sleep(0)


async def test_the_time_to_come_back_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that comes back a moment before is refused again."""
    monkeypatch.setattr(RetryAfter, "seconds", lambda self: 2.1)
    app = _shedding()
    answers = await asyncio.gather(*(_ask(app, "/work") for _ in range(100)))

    assert dict(answers[-1][0]["headers"])[b"retry-after"] == b"3"


async def test_the_refusal_is_typed_and_says_when_to_come_back() -> None:
    app = _shedding()
    answers = await asyncio.gather(*(_ask(app, "/work") for _ in range(100)))
    start, body = answers[-1]

    headers: dict[bytes, Any] = dict(start["headers"])
    assert json.loads(body["body"])["error"]["code"] == "overloaded"
    assert int(headers[b"content-length"]) == len(body["body"])
    assert 1 <= int(headers[b"retry-after"]) <= 60


async def test_a_burst_is_answered_where_other_processes_have_the_processor() -> None:
    app = Shedding(_busy_app, lambda scope: scope["path"] == "/work", time.monotonic)  # it waits all the time
    assert await _statuses(app, *["/work"] * 60) == [200] * 60


async def test_bursts_that_one_client_sends_are_answered_one_after_the_other() -> None:
    app = _shedding()
    for _ in range(5):
        assert await _statuses(app, *["/work"] * MIN_ARRIVALS) == [200] * MIN_ARRIVALS
        await asyncio.sleep(2 * LAG_S)  # an answer has come, and the client asks again


def test_time_asleep_is_no_wait_for_a_processor_and_the_count_only_grows() -> None:
    waited = ProcessorWaits()
    before = waited()
    time.sleep(0.05)
    asleep = waited() - before
    deadline = time.perf_counter() + 0.2
    while time.perf_counter() < deadline:
        pass
    assert 0 <= asleep < 0.05
    assert waited() - before >= asleep
