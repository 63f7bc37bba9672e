"""The store dies, hangs and comes back, while visitors vote and models answer."""

import asyncio
import json
import logging
import secrets
import signal
import time
from typing import Any

import httpx
import pytest

from tests.controller.support.arena import Arena, eventually, make_settings, of_kind, running_arena
from tests.controller.support.fake_worker import FakeWorker, words
from tests.controller.support.running import StoreProcess
from wire.ids import BattleId


def _settings(store: StoreProcess, **changes: Any) -> Any:
    return make_settings(store.url, f"test:{secrets.token_hex(4)}", **{"store_timeout_s": 5.0, **changes})


async def _answered(arena: Arena) -> str:
    battle = await arena.create()
    await arena.turn(battle["id"])
    return str(battle["id"])


async def _is_ready(arena: Arena) -> bool:
    return (await arena.client.get("/ready")).status_code == 200


async def _has_events(arena: Arena, battle_id: str) -> bool:
    return bool(await arena.redis.xlen(arena.keys.events(BattleId(battle_id))))


async def _vote_until_acknowledged(
    arena: Arena, battle_id: str, outcome: str, is_refused: asyncio.Event | None = None
) -> dict[str, Any]:
    """As the page does: without an answer the state of the vote is unknown, so the same vote is sent again."""
    while True:
        try:
            response = await arena.vote(battle_id, outcome)
        except httpx.HTTPError:
            continue
        if response.status_code == 200:
            return response.json()
        assert response.status_code == 503, response.text
        assert response.json()["error"]["code"] == "store_unavailable"
        assert int(response.headers["retry-after"]) >= 1
        if is_refused is not None:
            is_refused.set()
        await asyncio.sleep(0.05)


async def test_no_acknowledged_vote_is_lost_or_doubled_when_the_store_is_killed(own_store: StoreProcess) -> None:
    async with running_arena(_settings(own_store)) as arena:
        await arena.add_two()
        battle_ids = [await _answered(arena) for _ in range(12)]
        acknowledged: dict[str, dict[str, Any]] = {}

        async def vote(battle_id: str, outcome: str, is_refused: asyncio.Event) -> None:
            acknowledged[battle_id] = await _vote_until_acknowledged(arena, battle_id, outcome, is_refused)

        for first in range(0, len(battle_ids), 4):
            is_refused = asyncio.Event()
            votes = [vote(battle_ids[first + i], "ab"[i % 2], is_refused) for i in range(4)]
            early = [asyncio.create_task(vote) for vote in votes[:2]]
            await asyncio.wait(early, return_when=asyncio.FIRST_COMPLETED)  # the other one may be under way
            own_store.kill()
            late = [asyncio.create_task(vote) for vote in votes[2:]]
            await is_refused.wait()
            await asyncio.to_thread(own_store.start)
            await asyncio.gather(*early, *late)

        log = {record["battle_id"]: record for record in await arena.vote_log()}
        assert len(await arena.vote_log()) == len(battle_ids)
        for battle_id, reply in acknowledged.items():
            assert (log[battle_id]["vote_id"], log[battle_id]["outcome"]) == (reply["vote_id"], reply["outcome"])


async def test_while_the_store_is_down_everything_answers_503_and_recovers_by_itself(own_store: StoreProcess) -> None:
    async with running_arena(_settings(own_store)) as arena:
        await arena.add_two()
        battle_id = await _answered(arena)
        own_store.kill()

        requests: list[tuple[str, str, Any]] = [
            ("POST", "/arena/battles", {"mode": "anonymous"}),
            ("GET", f"/arena/battles/{battle_id}", None),
            ("POST", f"/arena/battles/{battle_id}/turns", {"content": "x"}),
            ("POST", f"/arena/battles/{battle_id}/regenerate", None),
            ("POST", f"/arena/battles/{battle_id}/stop", None),
            ("POST", f"/arena/battles/{battle_id}/vote", {"outcome": "a"}),
            ("GET", f"/arena/battles/{battle_id}/stream", None),
            ("GET", "/arena/leaderboard", None),
            ("GET", "/ready", None),
        ]
        for method, path, body in requests:
            response = await arena.client.request(method, path, json=body)
            assert response.status_code == 503, (path, response.text)
            assert response.json()["error"]["code"] == "store_unavailable", path
            assert "retry-after" in response.headers, path
        assert (await arena.client.get("/health")).status_code == 200
        assert (await arena.client.get("/v1/models")).status_code == 200  # the last known table

        await asyncio.to_thread(own_store.start)
        await eventually(lambda: _is_ready(arena))

        async def has_workers() -> bool:
            return len((await arena.client.get("/arena/workers")).json()) == 2

        await eventually(has_workers)
        assert (await arena.vote(battle_id)).status_code == 200
        await _answered(arena)


_CHAT = {"model": "alpha", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}


async def _completion(arena: Arena) -> httpx.Response:
    return await arena.client.post("/v1/chat/completions", json=_CHAT)


@pytest.mark.parametrize("fault", ["stopped", "killed"])
async def test_completions_go_on_while_the_store_is_away_and_nothing_else_does(
    own_store: StoreProcess, fault: str
) -> None:
    """Streams, tokens and models too; all leases are given back, and the store counts again when it is there."""
    async with running_arena(_settings(own_store, store_timeout_s=1.0)) as arena:
        await arena.add_two()
        battle_id = await _answered(arena)
        if fault == "stopped":
            own_store.signal(signal.SIGSTOP)
        else:
            own_store.kill()
        try:
            started = time.monotonic()
            for _ in range(3):
                responses = await asyncio.gather(*(_completion(arena) for _ in range(4)))
                assert [response.status_code for response in responses] == [200] * 4, responses[0].text
                assert responses[0].json()["choices"][0]["message"]["content"]
                assert "x-ratelimit-remaining-requests" in responses[0].headers
            streamed = await arena.client.post("/v1/chat/completions", json={**_CHAT, "stream": True})
            assert streamed.text.endswith("data: [DONE]\n\n")
            assert time.monotonic() - started < 15
            assert (await arena.vote(battle_id)).status_code == 503
            assert (await arena.client.post("/arena/battles", json={"mode": "anonymous"})).status_code == 503
        finally:
            if fault == "stopped":
                own_store.signal(signal.SIGCONT)
            else:
                await asyncio.to_thread(own_store.start)
        await eventually(lambda: _is_ready(arena))
        await eventually(arena.has_no_leases)
        assert (await _completion(arena)).status_code == 200
        assert (await _vote_until_acknowledged(arena, battle_id, "a"))["vote_id"]


async def test_the_limits_hold_while_the_store_is_away(own_store: StoreProcess) -> None:
    """The rate of a caller goes on from what the store last said."""
    settings = _settings(own_store, local_rate_per_minute=1, local_rate_burst=6)
    async with running_arena(settings) as arena:
        await arena.add_two()
        assert [(await _completion(arena)).status_code for _ in range(3)] == [200] * 3
        own_store.kill()
        responses = [await _completion(arena) for _ in range(5)]
        assert [response.status_code for response in responses] == [200, 200, 200, 429, 429]
        assert responses[-1].json()["error"]["code"] == "rate_limited"
        assert int(responses[-1].headers["retry-after"]) >= 30


async def test_a_worker_gets_no_more_than_it_takes_while_the_store_is_away(own_store: StoreProcess) -> None:
    async with running_arena(_settings(own_store)) as arena:
        await arena.add_worker(FakeWorker("alpha", num_tokens=40, delay_s=0.02, max_running=2))
        own_store.kill()
        responses = await asyncio.gather(*(_completion(arena) for _ in range(4)))
        assert sorted(response.status_code for response in responses) == [200, 200, 503, 503]


async def test_a_store_that_hangs_blocks_no_request_for_long(own_store: StoreProcess) -> None:
    async with running_arena(_settings(own_store, store_timeout_s=2.0)) as arena:
        await arena.add_two()
        battle_id = await _answered(arena)
        own_store.signal(signal.SIGSTOP)
        try:
            started = time.monotonic()
            responses = await asyncio.gather(*(arena.vote(battle_id, "a") for _ in range(20)))
            assert time.monotonic() - started < 20  # one after another they would take 40
            assert {response.status_code for response in responses} == {503}
        finally:
            own_store.signal(signal.SIGCONT)
        await eventually(lambda: _is_ready(arena))

        reply = await _vote_until_acknowledged(arena, battle_id, "a")

        assert [record["vote_id"] for record in await arena.vote_log()] == [reply["vote_id"]]


async def test_a_turn_outlives_a_restart_of_the_store_without_a_lost_or_doubled_word(
    own_store: StoreProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_arena(_settings(own_store, worker_lease_s=10.0)) as arena:
        await arena.add_two(num_tokens=80, delay_s=0.02)
        battle = await arena.create()
        turn = asyncio.create_task(arena.turn(battle["id"]))
        await eventually(lambda: _has_events(arena, battle["id"]))

        own_store.kill()
        await eventually(lambda: "turn_waits_for_store" in caplog.messages)
        await asyncio.to_thread(own_store.start)

        events = await turn
        assert json.loads(events[-1].data) == {"turn": 1, "state": "answered", "is_kept": True}
        for side in "ab":
            deltas = [json.loads(event.data) for event in of_kind(events, "delta")]
            assert "".join(delta["text"] for delta in deltas if delta["side"] == side) == words(80)
        assert [event.id for event in events] == [f"1-{n}" for n in range(len(events))]
        assert (await arena.vote(battle["id"])).status_code == 200


async def test_leases_that_end_while_the_store_is_away_are_given_back_when_it_answers(own_store: StoreProcess) -> None:
    """Long before they expire: a store that starts again and again would leave no place at the workers."""
    async with running_arena(_settings(own_store, slot_lease_s=600.0)) as arena:
        workers = await arena.add_two(num_tokens=40, delay_s=0.02)
        battle = await arena.create()
        turn = asyncio.create_task(arena.turn(battle["id"]))
        await eventually(lambda: _has_events(arena, battle["id"]))

        own_store.kill()
        await eventually(lambda: not any(worker.num_open for worker in workers))
        await asyncio.to_thread(own_store.start)

        await turn
        await eventually(arena.has_no_leases)


async def test_a_reader_whose_store_stays_away_is_told_to_come_back(own_store: StoreProcess) -> None:
    async with running_arena(_settings(own_store, store_patience_s=0.5)) as arena:
        await arena.add_two(num_tokens=300, delay_s=0.02)
        battle = await arena.create()
        turn = asyncio.create_task(arena.turn(battle["id"]))
        await eventually(lambda: _has_events(arena, battle["id"]))
        own_store.kill()

        events = await turn

        assert events[-1].event == "error"
        assert json.loads(events[-1].data)["error"]["code"] == "store_unavailable"
        await eventually(lambda: sum(worker.num_open for worker in arena.workers) == 0)


async def test_a_store_that_may_lose_votes_is_noticed_at_start(
    own_store: StoreProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="controller")
    settings = _settings(own_store)

    async with running_arena(settings) as arena:
        await eventually(lambda: "store_durable" in caplog.messages)
        await arena.redis.config_set("appendfsync", "everysec")
    async with running_arena(settings):
        await eventually(lambda: "store_not_durable" in caplog.messages)


async def test_a_controller_starts_without_a_store_and_finds_it_later(own_store: StoreProcess) -> None:
    own_store.kill()
    async with running_arena(_settings(own_store)) as arena:
        assert (await arena.client.get("/health")).status_code == 200
        assert not await _is_ready(arena)
        response = await arena.client.post("/v1/completions", json={"model": "alpha", "prompt": "x"})
        assert response.status_code == 503

        await asyncio.to_thread(own_store.start)

        await eventually(lambda: _is_ready(arena))
