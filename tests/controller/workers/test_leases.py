"""Leases never leak: after every kind of end, no lease is left in the store."""

import asyncio
import contextlib
from typing import Any

import httpx

from tests.controller.support.arena import Arena, eventually
from tests.controller.support.fake_worker import FakeWorker
from wire.errors import ApiError, ErrorCode

CHAT: dict[str, Any] = {"model": "alpha", "messages": [{"role": "user", "content": "hello"}]}


async def test_no_lease_is_left_after_errors_of_every_kind(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    faults: list[dict[str, Any]] = [
        {"break_at": 0},
        {"break_at": 2},
        {"fail_at": 0},
        {"fail_at": 3},
        {"refusal": ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "long")},
        {"refusal": ApiError(ErrorCode.INTERNAL_ERROR, "oops")},
        {"refusal": ApiError(ErrorCode.QUEUE_FULL, "full")},
        {},
    ]
    for fault in faults:
        for name, value in fault.items():
            setattr(worker, name, value)
        for stream in (False, True):
            await arena.client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
        worker.heal()

    await eventually(arena.has_no_leases)


async def test_no_lease_is_left_after_clients_that_leave_at_any_moment(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha", num_tokens=40, delay_s=0.005))

    async def leave_after(delay_s: float, stream: bool) -> None:
        with contextlib.suppress(httpx.TimeoutException):
            await arena.client.post("/v1/chat/completions", json={**CHAT, "stream": stream}, timeout=delay_s)

    await asyncio.gather(*(leave_after(0.002 + i * 0.008, bool(i % 2)) for i in range(50)))

    await eventually(arena.has_no_leases)
    await eventually(lambda: worker.num_open == 0)


async def test_no_lease_is_left_after_battles_that_end_in_every_way(arena: Arena) -> None:
    alpha = await arena.add_worker(FakeWorker("alpha", num_tokens=10, delay_s=0.005))
    await arena.add_worker(FakeWorker("beta", num_tokens=10, delay_s=0.005))
    for fault in (
        {},
        {"break_at": 0},
        {"break_at": 4},
        {"fail_at": 0},
        {"refusal": ApiError(ErrorCode.QUEUE_FULL, "")},
    ):
        for name, value in fault.items():
            setattr(alpha, name, value)
        battle = await arena.create("alpha", "beta")
        await arena.client.post(f"/arena/battles/{battle['id']}/turns", json={"content": "x"})
        alpha.heal()

    await eventually(arena.has_no_leases)


async def test_a_side_that_has_finished_gives_its_lease_back_at_once(arena: Arena) -> None:
    await arena.add_worker(FakeWorker("fast", num_tokens=1))
    slow = await arena.add_worker(FakeWorker("slow"))
    slow.may_speak.clear()
    battle = await arena.create("fast", "slow")
    turn = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: slow.num_open == 1)

    async def one_left() -> bool:
        return await arena.num_leases() == 1

    await eventually(one_left)
    assert slow.num_open == 1
    slow.may_speak.set()
    await turn
