"""A turn whose controller dies, stands still or shuts down goes on at another one; no word is doubled or missing."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from controller.battles.battle_store import MAX_AGE_S, MAX_TAKEOVERS
from controller.battles.revealing.claims import Claims
from controller.battles.turn_progress import HELD
from tests.controller.conftest import OpenArena
from tests.controller.support.arena import Arena, end_state, eventually, of_kind
from tests.controller.support.fake_worker import FakeWorker, thoughts, words
from tests.controller.support.left_turns import abandon, delta_event, resume, texts_of
from wire.battles import DeltaEvent, FinishedEvent
from wire.chat import Usage

USAGE = Usage.counted(7, 30)


def _finished(side: Any) -> tuple[str, str, str]:
    event = FinishedEvent(side=side, finish_reason="stop").model_dump_json()
    return "finished", event, json.dumps({"total_ms": 9.0, "usage": USAGE.model_dump()})


async def test_a_turn_of_a_dead_controller_goes_on_where_its_events_end(arena: Arena) -> None:
    alpha, beta = await arena.add_two(num_tokens=30)
    battle = await arena.create("alpha", "beta")
    await abandon(
        arena, battle["id"], [delta_event("a", 0, 0, 4), delta_event("b", 0, 0, 2), delta_event("a", 1, 4, 9)]
    )

    events = await resume(arena, battle["id"])

    assert texts_of(events) == {"a": words(30), "b": words(30)}
    assert end_state(events) == "answered"
    assert [len(worker.requests[0].resume_token_ids) for worker in (alpha, beta)] == [9, 2]
    turn = (await arena.view(battle["id"]))["turns"][0]
    assert [turn[side]["text"] for side in "ab"] == [words(30)] * 2
    assert (await arena.vote(battle["id"])).status_code == 200
    assert not await arena.redis.zcard(arena.keys.turns)
    await eventually(arena.has_no_leases)
    assert (
        'arena_failovers_total{phase="takeover"} 1.0' in (await arena.client.get("/metrics", headers=arena.admin)).text
    )


async def test_a_turn_that_was_begun_before_the_clock_was_set_back_goes_on(arena: Arena) -> None:
    """Its ownership and the leases of its dead controller end in an hour."""
    workers = await arena.add_two(num_tokens=20)
    battle = await arena.create("alpha", "beta")
    in_an_hour_ms = (int((await arena.redis.time())[0]) + 3600) * 1000
    for worker in workers:
        leases = {f"battle-{number}": in_an_hour_ms for number in range(100)}
        await arena.redis.zadd(arena.keys.leases(worker.worker_id), leases)
    await abandon(arena, battle["id"], [delta_event("a", 0, 0, 4)], owner_until=in_an_hour_ms)
    await arena.redis.zadd(arena.keys.turns, {battle["id"]: in_an_hour_ms})

    assert texts_of(await resume(arena, battle["id"])) == {"a": words(20), "b": words(20)}


async def test_a_side_that_had_finished_stays_finished(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=30)
    battle = await arena.create("alpha", "beta")
    await abandon(arena, battle["id"], [delta_event("a", 0, 0, 30), _finished("a"), delta_event("b", 0, 0, 3)])

    events = await resume(arena, battle["id"])

    assert texts_of(events) == {"a": words(30), "b": words(30)}
    assert sorted(json.loads(event.data)["side"] for event in of_kind(events, "finished")) == ["a", "b"]
    assert alpha.requests == []
    assert (await arena.vote(battle["id"])).status_code == 200
    side = (await arena.vote_log())[0]["a"]
    assert (side["completion_tokens"], side["first_token_ms"], side["total_ms"]) == (30, 5.0, 9.0)


async def test_a_turn_whose_last_event_alone_was_missing_gets_it(arena: Arena) -> None:
    workers = await arena.add_two(num_tokens=3)
    battle = await arena.create("alpha", "beta")
    written = [delta_event("a", 0, 0, 3), _finished("a"), delta_event("b", 0, 0, 3), _finished("b")]
    await abandon(arena, battle["id"], written)

    events = await resume(arena, battle["id"])

    assert [event.event for event in events] == ["delta", "finished", "delta", "finished", "turn_finished"]
    assert end_state(events) == "answered"
    assert [worker.requests for worker in workers] == [[], []]


async def test_a_side_that_had_failed_stays_failed_and_the_other_one_goes_on(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=30)
    battle = await arena.create("alpha", "beta")
    error = {"message": "One of the models failed to answer.", "type": "server_error", "code": "worker_failed"}
    failed = ("failed", json.dumps({"side": "a", "error": error}), "")
    await abandon(arena, battle["id"], [delta_event("a", 0, 0, 3), failed, delta_event("b", 0, 0, 3)])

    events = await resume(arena, battle["id"])

    assert texts_of(events) == {"a": words(3), "b": words(30)}
    assert [json.loads(event.data)["side"] for event in of_kind(events, "failed")] == ["a"]
    assert [json.loads(event.data)["side"] for event in of_kind(events, "finished")] == ["b"]
    assert end_state(events) == "answered"
    assert alpha.requests == []


async def test_a_model_that_cannot_resume_fails_after_its_first_word_and_starts_anew_before_it(arena: Arena) -> None:
    alpha, beta = FakeWorker("alpha", num_tokens=20), FakeWorker("beta", num_tokens=20)
    alpha.can_resume = beta.can_resume = False
    await arena.add_worker(alpha)
    await arena.add_worker(beta)
    battle = await arena.create("alpha", "beta")
    await abandon(arena, battle["id"], [delta_event("a", 0, 0, 3, tokens=False)])

    events = await resume(arena, battle["id"])

    assert [json.loads(event.data)["side"] for event in of_kind(events, "failed")] == ["a"]
    assert [json.loads(event.data)["side"] for event in of_kind(events, "finished")] == ["b"]
    assert texts_of(events) == {"a": words(3), "b": words(20)}
    assert alpha.requests == []


async def test_a_turn_that_ends_its_controllers_or_is_too_old_is_ended_and_keeps_a_finished_side(arena: Arena) -> None:
    await arena.add_two(num_tokens=30)
    now_ms = int((await arena.redis.time())[0]) * 1000
    causes: list[dict[str, Any]] = [
        {"takeovers": MAX_TAKEOVERS},
        {"began_ms": now_ms - round(1000 * MAX_AGE_S) - 1000},
    ]
    for cause in causes:
        battle = await arena.create("alpha", "beta")
        written = [delta_event("a", 0, 0, 2), _finished("a"), delta_event("b", 0, 0, 2)]
        await abandon(arena, battle["id"], written, **cause)

        events = await resume(arena, battle["id"])

        assert [event.event for event in events[-2:]] == ["failed", "turn_finished"]
        assert [json.loads(event.data)["side"] for event in of_kind(events, "failed")] == ["b"]
        assert end_state(events) == "answered"
        view = await arena.view(battle["id"])
        assert (view["turns"][0]["a"]["text"], view["turns"][0]["a"]["finish_reason"]) == (words(2), "stop")


async def test_the_text_of_a_turn_that_ends_its_controllers_is_not_looked_at(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def in_answer(self: Claims, answer: str, prompts: Sequence[str]) -> bool:
        read.append(answer)
        return False

    monkeypatch.setattr(Claims, "in_answer", in_answer)
    await arena.add_two(num_tokens=30)
    battle = await arena.create("alpha", "beta")
    written = [delta_event("a", 0, 0, 2), _finished("a"), delta_event("b", 0, 0, 2)]
    await abandon(arena, battle["id"], written, takeovers=MAX_TAKEOVERS)

    assert end_state(await resume(arena, battle["id"])) == "answered"
    assert read == []


@pytest.mark.parametrize(("owner", "counted"), [("dead", 1), ("", 0)])
async def test_only_owners_that_have_not_released_a_turn_count(arena: Arena, owner: str, counted: int) -> None:
    await arena.add_two(num_tokens=10)
    battle = await arena.create("alpha", "beta")
    await abandon(arena, battle["id"], [], owner=owner)

    await resume(arena, battle["id"])

    assert int(await arena.redis.hget(arena.keys.battle(battle["id"]), "takeovers") or -1) == counted


async def test_a_turn_of_a_controller_of_an_earlier_release_is_found_by_its_reader(arena: Arena) -> None:
    await arena.add_two(num_tokens=10)
    battle = await arena.create("alpha", "beta")
    await abandon(arena, battle["id"], [])
    await arena.redis.hdel(arena.keys.battle(battle["id"]), "began_ms", "takeovers")
    await arena.redis.delete(arena.keys.turns)

    events = await resume(arena, battle["id"])

    assert texts_of(events) == {"a": words(10), "b": words(10)}


async def test_a_turn_waits_for_a_place_at_a_worker(open_arena: Any) -> None:
    async with open_arena(replay_wait_s=30.0) as arena:
        alpha = await arena.add_worker(FakeWorker("alpha", num_tokens=10, max_running=1))
        await arena.add_worker(FakeWorker("beta", num_tokens=10))
        leases = arena.keys.leases(alpha.worker_id)
        until = 1000 * (int((await arena.redis.time())[0]) + 20)
        await arena.redis.zadd(leases, {"of the dead controller": until})
        battle = await arena.create("alpha", "beta")
        await abandon(arena, battle["id"], [delta_event("a", 0, 0, 4)])
        resumed = asyncio.create_task(resume(arena, battle["id"]))
        await eventually(lambda: len(arena.workers[1].requests) == 1)
        assert alpha.requests == []

        await arena.redis.zrem(leases, "of the dead controller")

        assert texts_of(await resumed) == {"a": words(10), "b": words(10)}


async def test_of_two_controllers_one_takes_the_turn(arena: Arena) -> None:
    workers = await arena.add_two(num_tokens=20)
    for _ in range(3):
        await arena.add_controller()
    for number in range(5):
        battle = await arena.create("alpha", "beta")
        await abandon(arena, battle["id"], [delta_event("a", 0, 0, 4)])
        assert texts_of(await resume(arena, battle["id"])) == {"a": words(20), "b": words(20)}
        assert [len(worker.requests) for worker in workers] == [number + 1] * 2


async def test_a_regeneration_that_is_taken_over_and_refused_gives_the_old_answers_back(arena: Arena) -> None:
    await arena.add_two(num_tokens=5)
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"])
    key = arena.keys.battle(battle["id"])
    old = await arena.redis.hget(key, "turn:1")
    entries: Any = await arena.redis.xrevrange(arena.keys.events(battle["id"]), count=1)
    last = entries[0][0]
    for worker in arena.workers:
        await arena.remove(worker)

    async def is_known() -> bool:
        return (await arena.client.get("/v1/models")).json()["data"] == []

    await eventually(is_known)
    await abandon(arena, battle["id"], [], run="2", run_from=last, undo=old, undo_turn="1")

    events = await resume(arena, battle["id"], last)

    assert [event.event for event in events] == ["failed", "turn_finished"]
    assert end_state(events) == "answered"
    assert (await arena.view(battle["id"]))["turns"][0]["a"]["text"] == words(5)
    assert (await arena.vote(battle["id"])).status_code == 200


async def test_a_former_owner_that_is_alive_writes_nothing_more(arena: Arena) -> None:
    """Its ownership ended while it stood still; the other controller's text is the only one."""
    for worker in await arena.add_two(num_tokens=40, delay_s=0.02):
        worker.may_speak.clear()
    battle = await arena.create("alpha", "beta")
    turn = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: sum(worker.num_open for worker in arena.workers) == 2)

    def is_taken_over() -> bool:
        return sum(len(worker.requests) for worker in arena.workers) >= 3

    while not is_taken_over():  # the owner, which is alive, may renew its ownership first
        await arena.redis.hset(arena.keys.battle(battle["id"]), "owner_until", 1)
        await arena.redis.zadd(arena.keys.turns, {battle["id"]: 1})
        with contextlib.suppress(AssertionError):
            await eventually(is_taken_over, timeout_s=2)
    for worker in arena.workers:
        worker.may_speak.set()

    assert texts_of(await turn) == {"a": words(40), "b": words(40)}
    assert (await arena.vote(battle["id"])).status_code == 200
    await eventually(arena.has_no_leases)


async def _knows_two_models(arena: Arena) -> bool:
    return len((await arena.client.get("/v1/models")).json()["data"]) == 2


async def test_a_turn_that_cannot_be_read_does_not_keep_the_others_from_going_on(arena: Arena) -> None:
    await arena.add_two(num_tokens=10)
    bad, good = [await arena.create("alpha", "beta") for _ in range(2)]
    await abandon(arena, bad["id"], [("delta", "no JSON", "")])
    await abandon(arena, good["id"], [])
    await arena.redis.zadd(arena.keys.turns, {bad["id"]: 1})

    assert end_state(await resume(arena, good["id"])) == "answered"
    assert (await arena.client.get("/ready")).status_code == 200


async def test_a_controller_that_shuts_down_hands_its_turns_over_at_once(open_arena: Any) -> None:
    async with open_arena() as staying:
        workers = await staying.add_two(num_tokens=100, delay_s=0.02)
        async with open_arena(key_prefix=staying.settings.key_prefix) as leaving:
            await eventually(lambda: _knows_two_models(leaving))
            battle = await leaving.create()
            turn = asyncio.create_task(leaving.turn(battle["id"]))
            await eventually(lambda: sum(worker.num_open for worker in workers) == 2)
            await asyncio.sleep(0.2)
        with contextlib.suppress(httpx.HTTPError, asyncio.CancelledError):
            turn.cancel()
            await turn

        events = await resume(staying, battle["id"])

        assert texts_of(events) == {"a": words(100), "b": words(100)}
        assert end_state(events) == "answered"
        assert any(worker.requests[-1].resume_token_ids for worker in workers)
        assert (await staying.vote(battle["id"])).status_code == 200


def _thoughts_shown(side: Any, seq: int, first: int, end: int) -> tuple[str, str, str]:
    said = thoughts(end).removeprefix(thoughts(first))
    data = DeltaEvent(side=side, seq=seq, text="", thoughts=said).model_dump_json()
    return "delta", data, json.dumps({"tokens": [1000 + i for i in range(first, end)], "first_token_ms": 5.0})


async def test_thoughts_of_a_dead_controllers_turn_go_on_and_stay_apart(arena: Arena) -> None:
    alpha, beta = await arena.add_two(num_tokens=10)
    alpha.num_thoughts = beta.num_thoughts = 6
    battle = await arena.create("alpha", "beta")
    both = json.loads(delta_event("b", 1, 0, 3)[1]) | {"thoughts": "t5 "}
    last = ("delta", json.dumps(both), json.dumps({"tokens": [1005, 1006, 1007, 1008]}))
    await abandon(arena, battle["id"], [_thoughts_shown("a", 0, 0, 4), _thoughts_shown("b", 0, 0, 5), last])

    events = await resume(arena, battle["id"])

    assert texts_of(events) == {"a": words(10), "b": words(10)}
    assert [len(worker.requests[0].resume_token_ids) for worker in (alpha, beta)] == [4, 9]
    turn = (await arena.view(battle["id"]))["turns"][0]
    assert [turn[side]["thoughts"] for side in "ab"] == [thoughts(6)] * 2
    assert [turn[side]["text"] for side in "ab"] == [words(10)] * 2


async def test_hidden_thoughts_of_a_dead_controllers_turn_go_on_and_stay_hidden(open_arena: OpenArena) -> None:
    async with open_arena(paced=400.0) as arena:
        alpha, beta = await arena.add_two(num_tokens=20)
        alpha.num_thoughts = beta.num_thoughts = 6
        battle = await arena.create()
        parts = {
            side: {"tokens": [1000 + i for i in range(count)], "text": "", "thoughts": thoughts(count)}
            for side, count in (("a", 2), ("b", 6))
        }
        await abandon(arena, battle["id"], [(HELD, "{}", json.dumps(parts))])

        events = await resume(arena, battle["id"])
        await arena.vote(battle["id"])
        turn = (await arena.view(battle["id"]))["turns"][0]

    assert end_state(events) == "answered"
    assert not [event for event in events if event.event == HELD or "t0 " in event.data]
    assert sorted(len(worker.requests[0].resume_token_ids) for worker in (alpha, beta)) == [2, 6]
    assert [turn[side]["thoughts"] for side in "ab"] == [thoughts(6)] * 2
    assert [turn[side]["text"] for side in "ab"] == [words(20)] * 2


async def test_a_hosted_model_that_has_only_thought_in_secret_begins_again(open_arena: OpenArena) -> None:
    async with open_arena(paced=400.0) as arena:
        alpha, beta = await arena.add_two(num_tokens=20)
        for worker in (alpha, beta):
            worker.num_thoughts, worker.can_resume, worker.has_token_ids = 6, False, False
        battle = await arena.create()
        await abandon(arena, battle["id"], [(HELD, "{}", json.dumps({"a": {"tokens": [], "thoughts": "t0 "}}))])

        events = await resume(arena, battle["id"])
        await arena.vote(battle["id"])
        turn = (await arena.view(battle["id"]))["turns"][0]

    assert end_state(events) == "answered"
    assert [turn[side]["thoughts"] for side in "ab"] == [thoughts(6)] * 2
