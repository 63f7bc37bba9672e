"""Boards of known logs, live and folded at once."""

import secrets
from typing import Any

import pytest

from controller.votes.leaderboard import fold_votes
from controller.votes.vote_fold import BOARDS
from tests.controller.support.arena import Arena, eventually
from tests.controller.support.fake_worker import FakeWorker
from wire.leaderboard import LeaderboardView
from wire.votes import StyleCounts, VotedSide, VoteRecord


def _vote(number: int, model_a: str, model_b: str, outcome: str, **changes: Any) -> VoteRecord:
    fields: dict[str, Any] = {
        "vote_id": f"{number}-0",
        "battle_id": f"battle-{number}-{secrets.token_hex(4)}",
        "time": float(number),
        "mode": "anonymous",
        "outcome": outcome,
        "a": VotedSide(model=model_a, revision="r", style=StyleCounts(tokens=10 + number % 7)),
        "b": VotedSide(model=model_b, revision="r", style=StyleCounts(tokens=10 + number % 5)),
    }
    return VoteRecord(**{**fields, **changes})


def _log() -> list[VoteRecord]:
    """Known comparisons: A-B 2:3, A-D 1:4, B-C 5:3, C-D 1:3."""
    results = [("A", "B", 2, 3), ("A", "D", 1, 4), ("B", "C", 5, 3), ("C", "D", 1, 3)]
    outcomes = [(x, y, o) for x, y, won, lost in results for o in ["a"] * won + ["b"] * lost]
    return [_vote(number, *outcome) for number, outcome in enumerate(outcomes, start=1)]


async def _import(arena: Arena, votes: list[VoteRecord]) -> None:
    body = b"\n".join(vote.model_dump_json().encode() for vote in votes)
    response = await arena.client.post("/arena/votes/import", content=body, headers=arena.admin)
    assert response.status_code == 200, response.text


async def _board(arena: Arena, **params: Any) -> LeaderboardView:
    response = await arena.client.get("/arena/leaderboard", params=params)
    assert response.status_code == 200, response.text
    return LeaderboardView.model_validate_json(response.content)


def test_a_folded_log_gives_the_known_ratings() -> None:
    view = fold_votes(_log(), min_votes=0)

    assert {row.model: row.rating for row in view.rows} == {
        "A": pytest.approx(922.427, abs=0.05),
        "B": pytest.approx(1007.366, abs=0.05),
        "C": pytest.approx(927.768, abs=0.05),
        "D": pytest.approx(1142.439, abs=0.05),
    }
    assert view.rows[0].model == "D"
    assert view.num_votes == 22


async def test_the_live_board_is_the_fold_of_the_log(arena: Arena) -> None:
    await _import(arena, _log())

    for board in BOARDS:
        for style_control in (False, True):
            live = await _board(arena, board=board, style_control=style_control, min_votes=0)
            log = [VoteRecord.model_validate(record) for record in await arena.vote_log()]
            folded = fold_votes(log, board=board, style_control=style_control, min_votes=0)
            same = {"updated_at": 0.0}
            assert live.model_copy(update=same) == folded.model_copy(update=same), (board, style_control)


async def test_a_new_vote_shows_within_seconds(arena: Arena) -> None:
    await _import(arena, _log())
    assert (await _board(arena)).num_votes == 22
    await _import(arena, [_vote(99, "A", "D", "a")])

    async def shown() -> bool:
        return (await _board(arena)).num_votes == 23

    await eventually(shown)


async def test_all_registered_models_are_listed_before_their_first_vote(arena: Arena) -> None:
    assert (await _board(arena)).rows == ()
    for model in ("alpha", "beta"):
        await arena.add_worker(FakeWorker(model))

    view = await _board(arena)

    assert sorted(row.model for row in view.rows) == ["alpha", "beta"]
    assert all(row.votes == 0 and row.lower is None for row in view.rows)


async def test_flagged_votes_are_left_out_of_the_ratings(arena: Arena) -> None:
    votes = [
        _vote(1, "A", "B", "a"),
        _vote(2, "A", "B", "b", flags=("identity_revealed",)),
        _vote(3, "A", "B", "tie", flags=("named",), mode="named"),
        _vote(4, "A", "B", "tie", turns=3),
    ]
    await _import(arena, votes)

    counts = {board: (await _board(arena, board=board)).num_votes for board in BOARDS}

    assert counts == {"overall": 2, "decisive": 1, "multi_turn": 1, "named": 1}


async def test_a_record_of_a_model_against_itself_does_not_stop_the_board(arena: Arena) -> None:
    await _import(arena, [_vote(1, "A", "A", "a"), *_log()])

    assert (await _board(arena)).num_votes == 22


async def test_every_controller_shows_the_same_board(arena: Arena) -> None:
    await _import(arena, _log())
    other = await arena.add_controller()

    first, second = [(await client.get("/arena/leaderboard")).json() for client in (arena.client, other)]

    assert first["rows"] == second["rows"]


async def test_a_log_that_was_replaced_is_folded_anew(arena: Arena) -> None:
    await _import(arena, _log())
    assert (await _board(arena)).num_votes == 22
    await arena.redis.delete(arena.keys.votes)

    async def empty() -> bool:
        return (await _board(arena)).num_votes == 0

    await eventually(empty)


@pytest.mark.parametrize("params", [{"board": "nonsense"}, {"min_votes": "-1"}, {"style_control": "perhaps"}])
async def test_a_question_that_makes_no_sense_is_refused(arena: Arena, params: dict[str, str]) -> None:
    response = await arena.client.get("/arena/leaderboard", params=params)

    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")
