"""Turns of an anonymous battle at one speed, over HTTP: what is shown, stored, stopped and taken over."""

import asyncio
import json

from tests.controller.conftest import OpenArena
from tests.controller.support.arena import Arena, end_state, eventually, of_kind
from tests.controller.support.fake_worker import words
from wire.ids import BattleId
from wire.sse import SseEvent

PACED = 400.0


def _sizes(events: list[SseEvent], side: str) -> list[int]:
    deltas = [json.loads(event.data) for event in of_kind(events, "delta")]
    return [len(delta["text"]) for delta in deltas if delta["side"] == side]


async def test_both_sides_are_shown_in_equal_pieces_however_fast_their_models_are(open_arena: OpenArena) -> None:
    async with open_arena(paced=PACED) as arena:
        _, beta = await arena.add_two(num_tokens=60)
        beta.delay_s = 0.01  # the other one has answered long before
        battle = await arena.create()
        events = await arena.turn(battle["id"])
        view = await arena.view(battle["id"])

    assert end_state(events) == "answered"
    assert _sizes(events, "a") == _sizes(events, "b")
    assert len(_sizes(events, "a")) > 3
    assert {side: view["turns"][0][side]["text"] for side in "ab"} == {"a": words(60), "b": words(60)}
    ends = [json.loads(event.data)["side"] for event in of_kind(events, "finished")]
    assert sorted(ends) == ["a", "b"]
    last_text = max(n for n, event in enumerate(events) if event.event == "delta")
    assert all(n > last_text for n, event in enumerate(events) if event.event == "finished")


async def test_a_named_battle_is_shown_as_it_comes(open_arena: OpenArena) -> None:
    async with open_arena(paced=1.0) as arena:  # a character a second: the test would not end
        await arena.add_two(num_tokens=60)
        battle = await arena.create("alpha", "beta")
        assert end_state(await arena.turn(battle["id"])) == "answered"


async def test_a_stopped_turn_keeps_what_was_shown(open_arena: OpenArena) -> None:
    async with open_arena(paced=20.0) as arena:
        await arena.add_two(num_tokens=200)
        battle = await arena.create()
        events = []
        async for event in arena.streamed("POST", f"/arena/battles/{battle['id']}/turns", json={"content": "hi"}):
            events.append(event)
            if len(of_kind(events, "delta")) == 4:
                await arena.client.post(f"/arena/battles/{battle['id']}/stop")
        view = await arena.view(battle["id"])
        vote = await arena.vote(battle["id"])

    shown = {"a": "", "b": ""}
    for event in of_kind(events, "delta"):
        delta = json.loads(event.data)
        shown[delta["side"]] += delta["text"]
    turn = view["turns"][0]
    assert {side: turn[side]["text"] for side in "ab"} == shown
    assert 0 < len(shown["a"]) < len(words(200))
    assert [turn[side]["finish_reason"] for side in "ab"] == ["abort", "abort"]
    assert vote.status_code == 200


async def test_a_turn_that_is_taken_over_shows_the_text_that_waited(open_arena: OpenArena) -> None:
    async with open_arena(paced=60.0) as arena:
        await arena.add_two(num_tokens=40)
        second = await arena.add_controller(paced=PACED)
        battle = await arena.create()
        turn = asyncio.create_task(arena.turn(battle["id"]))
        await eventually(lambda: _has_shown(arena, battle["id"], 4))
        await _lose_owner(arena, battle["id"])
        await turn
        path = f"/arena/battles/{battle['id']}/stream"
        events = await arena.events("GET", path, client=second)
        view = await arena.view(battle["id"])

    assert end_state(events) == "answered"
    texts = {"a": "", "b": ""}
    for event in of_kind(events, "delta"):
        delta = json.loads(event.data)
        texts[delta["side"]] += delta["text"]
    assert texts == {"a": words(40), "b": words(40)}
    assert {side: view["turns"][0][side]["text"] for side in "ab"} == texts


async def test_the_time_for_reading_is_counted_as_text_was_shown(open_arena: OpenArena) -> None:
    async with open_arena(paced=200.0, min_read_s=1.5) as arena:
        await arena.add_two(num_tokens=120)  # 490 characters: shown for more than two seconds
        battle = await arena.create()
        await arena.turn(battle["id"])
        vote = await arena.vote(battle["id"])

    assert vote.json()["rated"] is True


async def _has_shown(arena: Arena, battle_id: str, num_events: int) -> bool:
    return await arena.redis.xlen(arena.keys.events(BattleId(battle_id))) >= num_events


async def _lose_owner(arena: Arena, battle_id: str) -> None:
    """What remains of a turn whose controller died: nobody owns it, and its time has run out."""
    await arena.redis.hset(arena.keys.battle(BattleId(battle_id)), mapping={"owner": "dead", "owner_until": 1})
    await arena.redis.zadd(arena.keys.turns, {battle_id: 1})
