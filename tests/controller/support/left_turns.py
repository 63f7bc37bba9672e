"""Turns that a controller has left in the store, and what a reader is shown of them."""

import json
from typing import Any

from tests.controller.support.arena import Arena, of_kind
from tests.controller.support.fake_worker import words
from wire.battles import DeltaEvent
from wire.ids import BattleId
from wire.sse import SseEvent


async def resume(arena: Arena, battle_id: str, last_id: str | None = None, **kwargs: Any) -> list[SseEvent]:
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    return await arena.events("GET", f"/arena/battles/{battle_id}/stream", headers=headers, **kwargs)


def texts_of(events: list[SseEvent]) -> dict[str, str]:
    """What a reader shows; fails on gaps in the numbers of events or deltas."""
    assert [event.id for event in events if event.id] == [f"1-{n}" for n in range(len(events))]
    texts, next_seq = {"a": "", "b": ""}, {"a": 0, "b": 0}
    for event in of_kind(events, "delta"):
        delta = json.loads(event.data)
        assert delta["seq"] == next_seq[delta["side"]]
        next_seq[delta["side"]] += 1
        texts[delta["side"]] += delta["text"]
    return texts


async def abandon(arena: Arena, battle_id: str, events: list[tuple[str, str, str]], **fields: Any) -> None:
    """Put a first turn into the store as a controller leaves it that died some seconds ago."""
    now_ms = int((await arena.redis.time())[0]) * 1000
    left: dict[Any, Any] = {
        "state": "streaming",
        "turn": "1",
        "run": "1",
        "turn:1": '{"content":"hello"}',
        "owner": "dead",
        "owner_until": now_ms - 1,
        "began_ms": now_ms - 3000,
        "takeovers": 0,
        "undo": "",
        "undo_turn": "0",
        "run_from": "0-0",
        **fields,
    }
    await arena.redis.hset(arena.keys.battle(BattleId(battle_id)), mapping=left)
    for number, (name, data, private) in enumerate(events):
        entry: dict[Any, Any] = {"event": name, "data": data, **({"private": private} if private else {})}
        await arena.redis.xadd(arena.keys.events(BattleId(battle_id)), entry, id=f"1-{number}")
    await arena.redis.zadd(arena.keys.turns, {battle_id: float(left["owner_until"])})


def delta_event(side: Any, seq: int, first: int, end: int, *, tokens: bool = True) -> tuple[str, str, str]:
    """Words `first` to `end` - 1 in one event, with their tokens."""
    data = DeltaEvent(side=side, seq=seq, text=words(end, first)).model_dump_json()
    private = json.dumps({"tokens": [1000 + i for i in range(first, end)], "first_token_ms": 5.0})
    return "delta", data, private if tokens else ""
