"""What a voter adds to a vote: theirs alone, kept beside the vote, exported and imported, and counted by no rating."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.controller.support.arena import Arena, eventually, make_settings, running_arena, visitor
from tests.controller.support.running import StoreProcess
from tests.controller.votes.journal.support import board, journal_arena, voted
from wire.feedback import MAX_ADDITIONS

SAID = {"reasons": ["accuracy", "style"], "comment": " B invents a source. ", "thumbs": {"a": "up", "b": "down"}}
STORED = {**SAID, "comment": "B invents a source."}
EMPTY: dict[str, Any] = {"reasons": [], "comment": None, "thumbs": {}}


async def voted_battle(arena: Arena) -> str:
    """Id of a battle with a vote."""
    if not arena.workers:
        await arena.add_two()
    [vote] = await voted(arena, 1)
    return str(vote["battle_id"])


async def add(arena: Arena, battle_id: str, body: dict[str, Any], **kwargs: Any) -> httpx.Response:
    return await arena.client.post(f"/arena/battles/{battle_id}/feedback", json=body, **kwargs)


async def read(arena: Arena, battle_id: str, **kwargs: Any) -> httpx.Response:
    return await arena.client.get(f"/arena/battles/{battle_id}/feedback", **kwargs)


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def test_feedback_is_a_record_of_its_own_and_leaves_the_vote_as_it_was(arena: Arena) -> None:
    battle_id = await voted_battle(arena)
    [before] = await arena.vote_log()

    answer = await add(arena, battle_id, SAID)

    assert (answer.status_code, answer.json()) == (200, {"feedback": STORED, "num_left": MAX_ADDITIONS - 1})
    vote, record = await arena.vote_log()
    assert vote == before
    assert (record["kind"], record["battle_id"], record["voter"]) == ("feedback", battle_id, vote["voter"])
    assert {name: record[name] for name in STORED} == STORED
    assert (await read(arena, battle_id)).json() == answer.json()


async def test_the_last_addition_counts_and_all_are_kept(arena: Arena) -> None:
    battle_id = await voted_battle(arena)
    bodies: list[dict[str, Any]] = [SAID, {"thumbs": {"b": "up"}}, {}]
    for body in bodies:
        await add(arena, battle_id, body)

    assert (await read(arena, battle_id)).json()["feedback"] == EMPTY
    assert [record.get("thumbs") for record in (await arena.vote_log())[1:]] == [SAID["thumbs"], {"b": "up"}, {}]


async def test_the_same_addition_sent_again_is_one(arena: Arena) -> None:
    battle_id = await voted_battle(arena)
    answers = [await add(arena, battle_id, SAID) for _ in range(3)]
    assert len({answer.content for answer in answers}) == 1
    assert len(await arena.vote_log()) == 2
    nothing = await voted_battle(arena)
    assert (await add(arena, nothing, {})).json()["num_left"] == MAX_ADDITIONS
    assert len(await arena.vote_log()) == 3


async def test_feedback_needs_a_vote(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    await arena.turn(battle["id"])
    assert refusal(await add(arena, battle["id"], SAID)) == (409, "battle_not_finished")
    assert refusal(await add(arena, "nowhere", SAID)) == (404, "battle_not_found")
    assert await arena.vote_log() == []


async def test_only_the_voter_adds_and_reads(arena: Arena) -> None:
    battle_id = await voted_battle(arena)
    await add(arena, battle_id, SAID)
    stranger = visitor("203.0.113.9")
    assert refusal(await add(arena, battle_id, {"comment": "I am not the voter"}, headers=stranger)) == (
        403,
        "not_your_battle",
    )
    assert refusal(await read(arena, battle_id, headers=stranger)) == (403, "not_your_battle")
    assert "invents" not in json.dumps(await arena.view(battle_id))
    assert len(await arena.vote_log()) == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"reasons": ["because"]}, "reasons"),
        ({"comment": "x" * 2001}, "comment"),
        ({"thumbs": {"c": "up"}}, "thumbs"),
        ({"thumbs": {"a": "sideways"}}, "thumbs"),
        ({"outcome": "b"}, "outcome"),
    ],
)
async def test_what_is_not_feedback_is_refused_with_the_field(arena: Arena, body: dict[str, Any], param: str) -> None:
    battle_id = await voted_battle(arena)
    response = await add(arena, battle_id, body)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith(param)
    assert len(await arena.vote_log()) == 1


async def test_additions_to_one_vote_are_bounded(arena: Arena) -> None:
    battle_id = await voted_battle(arena)
    left = [(await add(arena, battle_id, {"comment": str(n)})).json()["num_left"] for n in range(MAX_ADDITIONS)]
    assert left == list(range(MAX_ADDITIONS))[::-1]
    assert refusal(await add(arena, battle_id, {"comment": "one more"})) == (409, "feedback_full")
    last = await add(arena, battle_id, {"comment": str(MAX_ADDITIONS - 1)})
    assert last.status_code == 200  # the last one again, because its answer was lost
    assert len(await arena.vote_log()) == 1 + MAX_ADDITIONS


async def test_no_board_counts_feedback(arena: Arena) -> None:
    battle_id = await voted_battle(arena)
    before = await board(arena.client)
    await add(arena, battle_id, SAID)
    await voted_battle(arena)
    after = await board(arena.client)
    assert (before["num_votes"], after["num_votes"]) == (1, 2)
    reviewed = await arena.client.get("/arena/admin/votes", headers=arena.admin)
    assert [vote["battle_id"] for vote in reviewed.json()["votes"]][-1] == battle_id
    assert len(reviewed.json()["votes"]) == 2


async def test_an_import_takes_feedback_once(arena: Arena) -> None:
    battle_id = await voted_battle(arena)
    await add(arena, battle_id, SAID)
    exported = (await arena.client.get("/arena/votes", headers=arena.admin)).content

    async with running_arena(make_settings(arena.settings.redis_url, arena.settings.key_prefix + ":other")) as other:

        async def import_it() -> dict[str, int]:
            answer = await other.client.post("/arena/votes/import", content=exported, headers=other.admin)
            return answer.json()

        assert [await import_it(), await import_it()] == [
            {"imported": 2, "skipped": 0},
            {"imported": 0, "skipped": 2},
        ]
        vote, record = await other.vote_log()
        assert (vote["battle_id"], record["battle_id"]) == (battle_id, battle_id)
        assert {name: record[name] for name in STORED} == STORED
        # The set of what is in the log is filled from the log where it is older than the log.
        await other.redis.delete(other.keys.logged_battles)
        assert await import_it() == {"imported": 0, "skipped": 2}


async def test_feedback_comes_back_from_the_journal_after_a_wipe(own_store: StoreProcess, tmp_path: Path) -> None:
    async with journal_arena(own_store, tmp_path / "j") as arena:
        [vote] = await voted(arena, 1)
        assert (await add(arena, vote["battle_id"], SAID)).status_code == 200
        before = await arena.vote_log()
        assert [line.get("kind") for line in before] == [None, "feedback"]
        await arena.redis.flushall()

        async def is_back() -> bool:
            return await arena.vote_log() == before

        await eventually(is_back)
        assert (await add(arena, vote["battle_id"], {"comment": "later"})).status_code == 200
