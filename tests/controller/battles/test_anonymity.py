"""Before the vote, no byte that leaves the controller tells the models of an anonymous battle apart."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.controller.support.arena import Arena, eventually, visitor
from tests.controller.support.fake_worker import FakeWorker
from wire.errors import ApiError, ErrorCode

SECRETS = ("zebrafish", "okapi", "rev-", "10.1.2.3", "Traceback")


class _Recorder:
    """Everything a visitor receives: status lines, headers and bodies."""

    def __init__(self, arena: Arena) -> None:
        self.client = httpx.AsyncClient(base_url=arena.url, timeout=20, verify=False, trust_env=False)
        self.seen: list[bytes] = []

    async def __call__(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        response = await self.client.request(method, path, **kwargs)
        self.seen.append(b"\n".join(name + b": " + value for name, value in response.headers.raw))
        self.seen.append(response.content)
        return response

    def assert_nothing_is_told(self, arena: Arena) -> None:
        everything = b"\n".join(self.seen).decode().lower()
        workers = [part for worker in arena.workers for part in (worker.worker_id, worker.url.split("//")[1])]
        for secret in (*SECRETS, *workers):
            assert secret.lower() not in everything, secret


async def _arena_of_two(arena: Arena) -> tuple[FakeWorker, FakeWorker]:
    one = await arena.add_worker(FakeWorker("zebrafish", num_tokens=4))
    two = await arena.add_worker(FakeWorker("acme/okapi", num_tokens=9))
    two.context_length = 2048
    return one, two


async def _whole_battle(visit: _Recorder) -> str:
    battle_id = str((await visit("POST", "/arena/battles", json={"mode": "anonymous"})).json()["id"])
    path = f"/arena/battles/{battle_id}"
    await visit("GET", path)
    await visit("POST", path + "/turns", json={"content": "Who are you?"})
    await visit("POST", path + "/turns", json={"content": "Really?"})
    await visit("POST", path + "/regenerate")
    await visit("GET", path + "/stream", headers={"Last-Event-ID": "1-0"})
    await visit("POST", path + "/stop")
    await visit("POST", path + "/vote", json={"outcome": "wrong"})
    await visit("POST", path + "/vote", json={"outcome": "a"}, headers=visitor("203.0.113.1") | {"Cookie": "no=1"})
    await visit("GET", path)
    return battle_id


async def test_a_battle_without_a_fault_tells_nothing_before_the_vote(arena: Arena) -> None:
    await _arena_of_two(arena)
    visit = _Recorder(arena)
    battle_ids = [await _whole_battle(visit) for _ in range(3)]
    visit.assert_nothing_is_told(arena)
    assert 'usage":{' not in b"".join(visit.seen).decode()

    reply = await visit("POST", f"/arena/battles/{battle_ids[0]}/vote", json={"outcome": "a"})

    assert sorted(reply.json()["models"].values()) == ["acme/okapi", "zebrafish"]
    await visit.client.aclose()


@pytest.mark.parametrize(
    "failure",
    [
        ApiError(ErrorCode.INTERNAL_ERROR, "zebrafish at 10.1.2.3 ran out of pages. Traceback ..."),
        ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "zebrafish takes 4096 tokens, this prompt has 5000"),
        ApiError(ErrorCode.INVALID_REQUEST, "zebrafish has no chat template"),
        ApiError(ErrorCode.UNSUPPORTED_PARAMETER, "zebrafish has no top_p", param="zebrafish"),
        ApiError(ErrorCode.MODEL_NOT_FOUND, "zebrafish?"),
        ApiError(ErrorCode.QUEUE_FULL, "zebrafish at 10.1.2.3 is full"),
        ApiError(ErrorCode.SHUTTING_DOWN, "zebrafish leaves"),
    ],
    ids=lambda failure: failure.code.value,
)
async def test_no_failure_of_a_worker_tells_who_it_was(arena: Arena, failure: ApiError) -> None:
    one, two = await _arena_of_two(arena)
    visit = _Recorder(arena)
    for worker in (one, two):
        for how in ("refusal", "fail_at"):
            worker.failure = failure
            setattr(worker, how, failure if how == "refusal" else 0)
            battle_id = (await visit("POST", "/arena/battles", json={"mode": "anonymous"})).json().get("id", "none")
            await visit("POST", f"/arena/battles/{battle_id}/turns", json={"content": "hello"})
            await visit("GET", f"/arena/battles/{battle_id}")
            await visit("POST", f"/arena/battles/{battle_id}/vote", json={"outcome": "a"})
            worker.heal()

    visit.assert_nothing_is_told(arena)
    await visit.client.aclose()


async def test_the_refusals_of_two_models_read_the_same(arena: Arena) -> None:
    one, two = await _arena_of_two(arena)
    bodies = set()
    for worker in (one, two):
        worker.refusal = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, f"{worker.model}: {worker.context_length}")
        battle = await arena.create()
        response = await arena.client.post(f"/arena/battles/{battle['id']}/turns", json={"content": "hello"})
        bodies.add((response.status_code, response.content))
        worker.heal()

    assert len(bodies) == 1


async def test_a_side_that_died_and_a_full_arena_tell_nothing(arena: Arena) -> None:
    one, two = await _arena_of_two(arena)
    visit = _Recorder(arena)
    for worker in (one, two):
        worker.break_at = 2
        battle_id = (await visit("POST", "/arena/battles", json={"mode": "anonymous"})).json()["id"]
        await visit("POST", f"/arena/battles/{battle_id}/turns", json={"content": "hello"})
        await visit("GET", f"/arena/battles/{battle_id}/stream")
        await visit("GET", f"/arena/battles/{battle_id}")
        worker.heal()
    battle_id = (await visit("POST", "/arena/battles", json={"mode": "anonymous"})).json()["id"]
    await arena.remove(one)
    await arena.remove(two)

    async def gone() -> bool:
        return (await visit("POST", "/arena/battles", json={"mode": "anonymous"})).status_code == 503

    await eventually(gone)
    assert (await visit("POST", f"/arena/battles/{battle_id}/turns", json={"content": "x"})).status_code == 503
    visit.assert_nothing_is_told(arena)
    await visit.client.aclose()


async def test_metrics_do_not_move_with_the_models_of_a_battle(arena: Arena) -> None:
    await _arena_of_two(arena)
    battle = await arena.create()
    await asyncio.gather(arena.turn(battle["id"]))

    text = (await arena.client.get("/metrics", headers=arena.admin)).text

    named = [line for line in text.splitlines() if "okapi" in line or "zebrafish" in line]
    assert all(line.startswith("arena_registry_workers{") for line in named)
