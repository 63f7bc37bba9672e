"""Pictures of page pools through a real controller from workers over real HTTP."""

import asyncio
from typing import Any

import pytest

from controller.workers import pools
from tests.controller.support.arena import Arena, eventually
from tests.controller.support.fake_worker import PICTURE, FakeWorker


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that a busy machine holds up shall not be left out."""
    monkeypatch.setattr(pools, "TIMEOUT_S", 30.0)


async def _pools(arena: Arena) -> list[dict[str, Any]]:
    answer = await arena.client.get("/arena/pools", headers=arena.admin)
    assert answer.status_code == 200
    return answer.json()


async def _until_loads_are_known(arena: Arena, count: int) -> None:
    async def are_known() -> bool:
        views = (await arena.client.get("/arena/workers", headers=arena.admin)).json()
        return sum(view["load"]["kv_bytes_total"] > 0 for view in views) == count

    await eventually(are_known)


async def test_every_worker_with_a_pool_is_shown(arena: Arena) -> None:
    workers = [await arena.add_worker(FakeWorker(name)) for name in ("alpha", "beta")]
    hosted = await arena.add_worker(FakeWorker("hosted", kv_bytes=0))
    await _until_loads_are_known(arena, 2)

    shown = await _pools(arena)

    assert [view["worker_id"] for view in shown] == sorted(worker.worker_id for worker in workers)
    assert all(view["picture"] == PICTURE.model_dump(mode="json") for view in shown)
    assert hosted.num_pool_looks == 0


async def test_concurrent_requests_for_pictures_are_one_request_to_a_worker(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MAX_AGE_S", 60.0)
    worker = await arena.add_worker(FakeWorker("alpha"))
    await _until_loads_are_known(arena, 1)
    worker.pool_delay_s = 0.1

    answers = await asyncio.gather(*(_pools(arena) for _ in range(20)))

    assert worker.num_pool_looks == 1
    assert all(shown == answers[0] for shown in answers)


@pytest.mark.parametrize("pool", ["{", "{}", '{"picture": {"layer_types": [], "cells": [[7, 1, 1]]}}'])
async def test_a_worker_that_talks_nonsense_is_left_out(arena: Arena, pool: str) -> None:
    good = await arena.add_worker(FakeWorker("alpha"))
    bad = await arena.add_worker(FakeWorker("beta"))
    bad.pool = pool
    await _until_loads_are_known(arena, 2)

    assert [view["worker_id"] for view in await _pools(arena)] == [good.worker_id]


async def test_a_slow_worker_holds_nobody_up(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "TIMEOUT_S", 2.0)
    good = await arena.add_worker(FakeWorker("alpha"))
    slow = await arena.add_worker(FakeWorker("beta"))
    slow.pool_delay_s = 60.0
    await _until_loads_are_known(arena, 2)

    async with asyncio.timeout(30):
        assert [view["worker_id"] for view in await _pools(arena)] == [good.worker_id]


async def test_no_address_of_a_worker_is_shown(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    await _until_loads_are_known(arena, 1)

    text = (await arena.client.get("/arena/pools", headers=arena.admin)).text

    assert worker.url not in text
    assert "alpha" not in text
