"""Votes that are not rated because of what is known when they are cast, and what the voter is told."""

import json
from typing import Any

import pytest

from controller.battles.battle_record import StoredAnswer, StoredTurn
from controller.votes.rated import ReadingPace
from tests.controller.support.arena import Arena, eventually
from tests.controller.support.fake_worker import FakeWorker

PACE = ReadingPace(min_s=1.0, max_chars_per_s=1000.0)


def _turn(chars: int, *, first_ms: float | None = 100.0, total_ms: float | None = 600.0) -> StoredTurn:
    answer = StoredAnswer(text="x" * chars, finish_reason="stop", first_token_ms=first_ms, total_ms=total_ms)
    return StoredTurn(content="hello", a=answer, b=answer)


@pytest.mark.parametrize(
    ("turn", "since_answers_ms", "is_too_quick"),
    [
        (_turn(10), 400, True),  # 0.9 s after the first word
        (_turn(10), 600, False),
        (_turn(10, first_ms=None, total_ms=None), 600, True),  # times were not measured: from the end of the answers
        (_turn(10, first_ms=None, total_ms=None), 1100, False),
        (_turn(2000), 3000, True),  # 4,000 characters
        (_turn(2000), 3600, False),
        (_turn(2000, total_ms=9000), 0, False),  # read while they were written
    ],
)
def test_nobody_reads_faster_than_the_pace(turn: StoredTurn, since_answers_ms: float, is_too_quick: bool) -> None:
    assert PACE.is_too_quick(turn, since_answers_ms) is is_too_quick
    assert not ReadingPace(min_s=0.0, max_chars_per_s=1.0).is_too_quick(turn, since_answers_ms)


async def test_a_vote_at_once_is_recorded_and_not_rated(open_arena: Any) -> None:
    async with open_arena(min_read_s=600.0) as arena:
        await arena.add_two()
        battle = await arena.create()
        await arena.turn(battle["id"])

        reply = (await arena.vote(battle["id"])).json()

        assert (reply["rated"], reply["flags"]) == (False, ["too_quick"])
        assert (await arena.vote(battle["id"])).json() == reply
        assert (await arena.view(battle["id"]))["flags"] == ["too_quick"]
        [record] = await arena.vote_log()
        assert record["flags"] == ["too_quick"]
        assert 0 <= record["read_ms"] < 600_000


async def test_a_vote_after_the_answers_is_rated_and_says_how_long_it_took(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    await arena.turn(battle["id"])
    reply = (await arena.vote(battle["id"])).json()
    assert (reply["rated"], reply["flags"]) == (True, [])
    [record] = await arena.vote_log()
    assert record["read_ms"] >= 0


async def test_stopped_answers_can_be_voted_on_and_are_not_rated(arena: Arena) -> None:
    """One visitor cast 73 rated votes in 12 seconds on answers stopped at the first word."""
    for model in ("alpha", "beta"):
        await arena.add_worker(FakeWorker(model, delay_s=0.05, num_tokens=400))
    battle = await arena.create()
    path, seen, was_stopped = f"/arena/battles/{battle['id']}", set(), False
    async for event in arena.streamed("POST", path + "/turns", json={"content": "hello"}):
        seen |= {json.loads(event.data)["side"]} if event.event == "delta" else set()
        if not was_stopped and seen == {"a", "b"}:
            await arena.client.post(path + "/stop")
            was_stopped = True

    reply = (await arena.vote(battle["id"])).json()

    assert (reply["rated"], reply["flags"]) == (False, ["stopped"])
    assert {(await arena.vote_log())[0][side]["finish_reason"] for side in "ab"} == {"abort"}
    await eventually(arena.has_no_leases)
