"""The judge of a running arena: judgements in the log, boards without the flagged votes, one judge at a time."""

import json
from typing import Any

import numpy as np
import pytest

from tests.controller.support.arena import Arena, eventually
from tests.controller.support.running import StoreProcess
from tests.controller.votes.integrity.crowds import honest_names, shuffled_log, vote
from tests.controller.votes.journal.support import board, journal_arena
from tests.ratings.integrity_crowd import honest, omnipresent, strengths
from wire.votes import VoteRecord

RNG = np.random.default_rng(21)
TRUE = strengths(RNG)
HONEST = [honest(RNG, TRUE, 12) for _ in range(60)]
RIGGED = shuffled_log(RNG, [*HONEST, omnipresent(RNG, TRUE, 60, 3)], [*honest_names(HONEST), {"voter": "rigger"}])
NUM_HONEST = len(RIGGED) - 60
#: The judge's limits, without caps: the votes of the crowds have few prompts and days.
JUDGED: dict[str, Any] = {"judge_every_s": 0.05, "voter_cap": 0, "address_cap": 0, "prompt_cap": 0}


async def _import(arena: Arena, votes: list[VoteRecord]) -> None:
    body = "\n".join(record.model_dump_json(exclude_none=True) for record in votes)
    answer = await arena.client.post("/arena/votes/import", content=body, headers=arena.admin)
    assert answer.status_code == 200, answer.text


async def _integrity(arena: Arena) -> dict[str, Any]:
    answer = await arena.client.get("/arena/integrity")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def _judgements(arena: Arena) -> list[dict[str, Any]]:
    return [line for line in await arena.vote_log() if "kind" in line]


async def test_a_rigger_is_taken_out_of_the_board_and_the_log_keeps_every_vote(open_arena: Any) -> None:
    async with open_arena(**JUDGED) as arena:
        other = await arena.add_controller()
        assert (await _integrity(arena))["num_votes"] in (0, None)
        await _import(arena, RIGGED)

        async def is_judged() -> bool:
            return (await _integrity(arena))["num_votes"] == len(RIGGED)

        await eventually(is_judged)

        [judgement] = await _judgements(arena)
        assert (judgement["flag"], judgement["voter"], judgement["by"]) == ("anomalous_voter", "rigger", "judge")
        assert judgement["evidence"]["surprise"] > 1000
        for client in (arena.client, other):
            view = await board(client)
            assert (view["num_votes"], view["unrated"]) == (NUM_HONEST, {"anomalous_voter": 60})
        view = await _integrity(arena)
        assert (view["num_rated"], view["voters_flagged"], view["voters_judged"]) == (NUM_HONEST, 1, 61)
        assert view["rules"]["surprise_limit"] == 1000
        assert "rigger" not in json.dumps(view)
        assert len(await arena.vote_log()) == len(RIGGED) + 1


async def test_an_administrator_flags_and_unflags_and_the_judge_obeys(open_arena: Any) -> None:
    async with open_arena(**JUDGED) as arena:
        await _import(arena, RIGGED)
        await eventually(lambda: _counts(arena, len(RIGGED)))

        async def cast(**wanted: Any) -> dict[str, Any]:
            answer = await arena.client.post("/arena/integrity/judgements", json=wanted, headers=arena.admin)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        back = await cast(action="unflag", flag="anomalous_voter", voter="rigger", note="it was me")
        assert (back["by"], back["note"], back["time"] > 0) == ("admin", "it was me", True)
        assert (await board(arena.client))["num_votes"] == len(RIGGED)
        out = await cast(action="flag", battle_ids=[RIGGED[0].battle_id])
        assert out["flag"] == "withdrawn"
        await _import(arena, [vote(90_001, 0, 1, "a", voter="rigger")])
        await eventually(lambda: _counts(arena, len(RIGGED) + 1))
        assert (await board(arena.client))["num_votes"] == len(RIGGED)
        assert [line["judgement_id"] for line in await _judgements(arena)][1:] == [
            back["judgement_id"],
            out["judgement_id"],
        ]


async def _has(arena: Arena, number: int) -> bool:
    return len(await _judgements(arena)) == number


async def _counts(arena: Arena, num_votes: int) -> bool:
    return bool((await _integrity(arena))["num_votes"] == num_votes)


@pytest.mark.parametrize(
    "body",
    [
        {"action": "flag"},
        {"action": "flag", "voter": "v", "cohort": "c"},
        {"action": "flag", "voter": "v", "flag": "ugly"},
        {"action": "keep", "voter": "v"},
        {"action": "flag", "battle_ids": ["b"] * 1001},
    ],
    ids=["no subject", "two subjects", "unknown flag", "unknown action", "too many battles"],
)
async def test_a_judgement_that_is_none_is_refused(arena: Arena, body: Any) -> None:
    answer = await arena.client.post("/arena/integrity/judgements", json=body, headers=arena.admin)
    assert answer.status_code == 400
    assert await arena.vote_log() == []


async def test_of_several_controllers_one_judges_and_another_takes_its_place(open_arena: Any) -> None:
    async with open_arena(**JUDGED) as arena:
        await arena.add_controller()

        async def judge() -> str | None:
            holder: str | None = await arena.redis.get(arena.keys.judge)
            return holder

        async def has_judge() -> bool:
            return await judge() is not None

        await eventually(has_judge)
        assert 0 < await arena.redis.pttl(arena.keys.judge) <= 30_000
        await arena.redis.set(arena.keys.judge, "a controller that died", px=150)
        await _import(arena, RIGGED)
        await eventually(lambda: _counts(arena, len(RIGGED)))
        assert await _has(arena, 1)
        assert await judge() != "a controller that died"


async def test_the_next_judge_goes_on_and_a_lost_note_does_no_harm(open_arena: Any) -> None:
    async with open_arena(key_prefix="test:next-judge", **JUDGED) as arena:
        await _import(arena, RIGGED)
        await eventually(lambda: _counts(arena, len(RIGGED)))
        judged = await _integrity(arena)
    async with open_arena(key_prefix="test:next-judge", **JUDGED) as arena:
        assert (await _integrity(arena))["judged_up_to"] == judged["judged_up_to"]
        await arena.redis.set(arena.keys.integrity, '{"damaged')
        await eventually(lambda: _counts(arena, len(RIGGED)))
        assert await _has(arena, 1)


async def test_votes_beyond_the_cap_of_a_prompt_leave_the_board(open_arena: Any) -> None:
    async with open_arena(**{**JUDGED, "prompt_cap": 4}) as arena:
        await _import(arena, [vote(n, n % 3, 3, "a", prompt="p") for n in range(1, 11)])
        await eventually(lambda: _counts(arena, 10))
        [judgement] = await _judgements(arena)
        assert (judgement["flag"], judgement["battle_ids"]) == ("prompt_cap", [f"battle-{n}" for n in range(5, 11)])
        assert (await board(arena.client))["num_votes"] == 4


async def test_judgements_come_back_with_the_votes_after_a_wipe(own_store: StoreProcess, tmp_path: Any) -> None:
    async with journal_arena(own_store, tmp_path / "j", **JUDGED) as arena:
        await _import(arena, RIGGED)
        await eventually(lambda: _counts(arena, len(RIGGED)))
        before = await arena.vote_log()
        await arena.redis.flushall()

        async def is_back() -> bool:
            return await arena.vote_log() == before

        await eventually(is_back)
        await eventually(lambda: _counts(arena, len(RIGGED)))
        assert (await board(arena.client))["num_votes"] == NUM_HONEST
        assert await _has(arena, 1)
