"""Readers of a turn: they disconnect, resume at any controller, come late, and always read an end."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.battles import turn_stream
from controller.battles.battle_store import TurnStore
from controller.battles.turn_stream import TurnStream
from controller.store.store import StreamEntry, unavailable
from tests.controller.support.arena import Arena, eventually, of_kind
from tests.controller.support.fake_worker import words
from wire.entry_ids import LOG_START
from wire.ids import BattleId
from wire.sse import SseDecoder, SseEvent


async def _first_events(arena: Arena, battle_id: str, count: int) -> list[SseEvent]:
    """Begin a turn and hang up after `count` events."""
    decoder, events = SseDecoder(), []
    path = f"/arena/battles/{battle_id}/turns"
    async with arena.client.stream("POST", path, json={"content": "hello"}) as response:
        async for part in response.aiter_raw():
            events.extend(decoder.feed(part))
            if len(events) >= count:
                break
    return events[:count]


async def _resume(arena: Arena, battle_id: str, last_id: str | None, **kwargs: Any) -> list[SseEvent]:
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    return await arena.events("GET", f"/arena/battles/{battle_id}/stream", headers=headers, **kwargs)


async def test_a_dropped_browser_resumes_with_exactly_the_missing_events(arena: Arena) -> None:
    await arena.add_two(num_tokens=40, delay_s=0.01)
    battle = await arena.create()
    seen = await _first_events(arena, battle["id"], 4)

    rest = await _resume(arena, battle["id"], seen[-1].id)

    whole = await _resume(arena, battle["id"], None)
    assert seen + rest == whole
    assert [event.id for event in whole] == [f"1-{n}" for n in range(len(whole))]
    assert rest[-1].event == "turn_finished"
    text = "".join(json.loads(e.data)["text"] for e in of_kind(whole, "delta") if json.loads(e.data)["side"] == "a")
    assert text == words(40)


async def test_any_controller_resumes_a_stream(arena: Arena) -> None:
    await arena.add_two(num_tokens=30, delay_s=0.01)
    other = await arena.add_controller()
    battle = await arena.create()
    seen = await _first_events(arena, battle["id"], 3)

    rest = await _resume(arena, battle["id"], seen[-1].id, client=other)

    assert seen + rest == await _resume(arena, battle["id"], None)


async def test_a_turn_goes_on_to_its_end_without_a_reader(arena: Arena) -> None:
    await arena.add_two(num_tokens=20, delay_s=0.01)
    battle = await arena.create()
    await _first_events(arena, battle["id"], 1)

    async def answered() -> bool:
        return (await arena.view(battle["id"]))["state"] == "answered"

    await eventually(answered)
    assert all(worker.num_aborted == 0 for worker in arena.workers)


async def test_several_readers_see_the_same_events(arena: Arena) -> None:
    await arena.add_two(num_tokens=30, delay_s=0.01)
    battle = await arena.create()
    turn = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: arena.workers[0].num_open == 1)

    readers = await asyncio.gather(*(_resume(arena, battle["id"], None) for _ in range(5)))

    assert readers == [await turn] * 5


async def test_each_stream_covers_one_turn_and_a_late_reader_goes_on_to_the_next(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    first, second = await arena.turn(battle["id"]), await arena.turn(battle["id"])

    assert {event.id.split("-")[0] for event in second if event.id} == {"2"}
    assert await _resume(arena, battle["id"], first[0].id) == first[1:]
    assert await _resume(arena, battle["id"], first[-1].id) == second
    assert await _resume(arena, battle["id"], None) == second


async def test_when_nothing_is_missing_the_stream_says_that_the_turn_is_over(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    assert [event.event for event in await _resume(arena, battle["id"], None)] == ["turn_finished"]
    events = await arena.turn(battle["id"])

    [end] = await _resume(arena, battle["id"], events[-1].id)

    assert json.loads(end.data) == {"turn": 1, "state": "answered", "is_kept": True}


async def test_a_reader_of_answers_that_were_replaced_is_told_to_forget_them(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    first = await arena.turn(battle["id"])
    again = await arena.events("POST", f"/arena/battles/{battle['id']}/regenerate")

    resumed = await _resume(arena, battle["id"], first[1].id)

    assert [event.event for event in resumed[:2]] == ["restarted", "restarted"]
    assert resumed[2:] == again
    assert {event.id for event in first}.isdisjoint({event.id for event in again})


async def test_an_event_id_that_is_none_is_refused(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    for last_id in ("x", "1", "-", "1-", "1-x", "$", "1-1-1", "9" * 30 + "-1", f"{2**64}-1", f"1-{2**64 - 1}"):
        response = await arena.client.get(f"/arena/battles/{battle['id']}/stream", headers={"Last-Event-ID": last_id})
        assert response.status_code == 400, last_id
    assert (await arena.client.get("/arena/battles/nowhere/stream")).status_code == 404


async def test_a_stream_tells_its_reader_to_come_back_when_the_controller_shuts_down() -> None:
    stream = TurnStream(_NoStore(), patience_s=60.0)  # type: ignore[arg-type]
    stream.close()

    assert await _errors(stream) == ["shutting_down"]


async def test_a_defect_of_ours_is_the_last_event_of_a_stream_and_cuts_it_not(caplog: Any) -> None:
    stream = TurnStream(_NoStore(), patience_s=60.0)  # type: ignore[arg-type]

    assert await _errors(stream) == ["internal_error"]
    assert "stream_failed" in caplog.messages


class _NoStore:
    """Every method raises."""

    async def read(self, battle_id: str) -> None:
        raise ZeroDivisionError(battle_id)


async def _errors(stream: TurnStream) -> list[str]:
    decoder = SseDecoder()
    events = [event async for part in stream.follow(BattleId("b"), None) for event in decoder.feed(part)]
    assert [event.event for event in events] == ["error"]
    return [json.loads(event.data)["error"]["code"] for event in events]


async def test_a_reader_of_a_turn_that_was_refused_before_its_first_event_reads_a_failure(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create("alpha", "beta")
    key = arena.keys.battle(battle["id"])
    running: dict[Any, Any] = {"state": "streaming", "turn": "1", "turn:1": '{"content":"hello"}'}
    running |= {"owner": "x", "owner_until": 2**50}
    await arena.redis.hset(key, mapping=running)
    reader = asyncio.create_task(_resume(arena, battle["id"], None))

    async def has_seen_it_run() -> bool:
        return any(client["cmd"] == "xread" and "b" in client["flags"] for client in await arena.redis.client_list())

    await eventually(has_seen_it_run)
    await arena.redis.hset(key, mapping={"state": "open", "turn": "0"})

    events = await reader

    assert [event.event for event in events] == ["failed", "turn_finished"]
    assert json.loads(events[-1].data) == {"turn": 0, "state": "open", "is_kept": False}


class _ShortLivedStore:
    """A store that answers and dies again within a second: what waits there never gets an answer."""

    def __init__(self) -> None:
        self.num_reads = 0

    async def read(self, battle_id: str) -> Any:
        return SimpleNamespace(state="streaming", run_from=LOG_START, sides={}, turns=())

    async def read_events(self, battle_id: str, after: str, *, block: bool) -> list[StreamEntry]:
        if block:
            raise unavailable()
        self.num_reads += 1
        end = {"event": "turn_finished", "data": "{}"}
        return [] if self.num_reads < 5 else [("1-0", end)]


async def test_a_store_that_answers_only_for_moments_is_not_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_stream, "RETRY_S", 0.1)
    stream = TurnStream(cast(TurnStore, _ShortLivedStore()), patience_s=0.3)
    decoder = SseDecoder()

    events = [event.event async for part in stream.follow(BattleId("b"), None) for event in decoder.feed(part)]

    assert events == ["turn_finished"]


async def test_a_stream_is_not_cached_and_says_what_it_is(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    path = f"/arena/battles/{battle['id']}/turns"
    async with arena.client.stream("POST", path, json={"content": "x"}) as response:
        await response.aread()

    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
