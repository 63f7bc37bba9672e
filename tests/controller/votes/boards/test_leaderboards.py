"""Boards of known logs, live and folded at once."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store
from controller.store_address import parse_address
from controller.votes.boards.board_view import BoardQuery, fold_log, view_of
from controller.votes.boards.board_votes import BOARDS
from controller.votes.boards.fitter import Fitter
from controller.votes.boards.history import FittedDays
from controller.votes.boards.leaderboards import Leaderboards
from controller.votes.boards.model_cards import ModelCards
from controller.votes.vote_log import LogEntry, LogState, VoteLog, stored
from tests.controller.conftest import OpenArena
from tests.controller.support.arena import Arena, eventually
from tests.controller.support.fake_worker import FakeWorker
from tests.controller.votes.boards.votes import known_log, make_judgement, make_vote
from wire.entry_ids import LOG_START, entry_order
from wire.feedback import FeedbackRecord
from wire.leaderboard import LeaderboardView
from wire.log_records import LogRecord, parse_log_values
from wire.votes import VotedSide


async def _import(arena: Arena, votes: Sequence[LogRecord]) -> None:
    body = b"\n".join(vote.model_dump_json().encode() for vote in votes)
    response = await arena.client.post("/arena/votes/import", content=body, headers=arena.admin)
    assert response.status_code == 200, response.text


def _folded(log: Sequence[LogRecord], **query: Any) -> LeaderboardView:
    view = view_of(BoardQuery(**query), fold_log(log), updated_at=0.0)
    assert view is not None
    return view


async def _board(arena: Arena, **params: Any) -> LeaderboardView:
    response = await arena.client.get("/arena/leaderboard", params=params)
    assert response.status_code == 200, response.text
    return LeaderboardView.model_validate_json(response.content)


def test_a_folded_log_gives_the_known_ratings() -> None:
    view = _folded(known_log(), min_votes=0)

    assert {row.model: row.rating for row in view.rows} == {
        "A": pytest.approx(922.427, abs=0.05),
        "B": pytest.approx(1007.366, abs=0.05),
        "C": pytest.approx(927.768, abs=0.05),
        "D": pytest.approx(1142.439, abs=0.05),
    }
    assert view.rows[0].model == "D"
    assert view.num_votes == 22


async def test_the_live_board_is_the_fold_of_the_log(arena: Arena) -> None:
    await _import(arena, known_log())

    for board in BOARDS:
        for style_control in (False, True):
            live = await _board(arena, board=board, style_control=style_control, min_votes=0)
            log = [parse_log_values(record) for record in await arena.vote_log()]
            folded = _folded(log, board=board, style_control=style_control, min_votes=0)
            same: dict[str, Any] = {"updated_at": 0.0, "states": {}}
            assert live.model_copy(update=same) == folded.model_copy(update=same), (board, style_control)


def test_feedback_changes_no_board() -> None:
    said = FeedbackRecord(feedback_id="99-0", key="feedback:1", time=99.0, battle_id="battle-1", thumbs={"a": "down"})
    log = list(known_log())
    with_feedback = _folded([*log[:5], said, *log[5:], said])
    assert with_feedback.last_vote_id == "99-0"  # how far the log was read
    assert with_feedback == _folded(log).model_copy(update={"last_vote_id": "99-0"})


async def test_a_new_vote_shows_within_seconds(arena: Arena) -> None:
    await _import(arena, known_log())
    assert (await _board(arena)).num_votes == 22
    await _import(arena, [make_vote(99, "A", "D", "a")])

    async def shown() -> bool:
        return (await _board(arena)).num_votes == 23

    await eventually(shown)


async def test_all_registered_models_are_listed_before_their_firstmake_vote(arena: Arena) -> None:
    assert (await _board(arena)).rows == ()
    for model in ("alpha", "beta"):
        await arena.add_worker(FakeWorker(model))

    view = await _board(arena)

    assert sorted(row.model for row in view.rows) == ["alpha", "beta"]
    assert all(row.votes == 0 and row.lower is None for row in view.rows)


async def test_flagged_votes_are_left_out_of_the_ratings(arena: Arena) -> None:
    votes = [
        make_vote(1, "A", "B", "a"),
        make_vote(2, "A", "B", "b", flags=("identity_revealed",)),
        make_vote(3, "A", "B", "tie", flags=("named",), mode="named"),
        make_vote(4, "A", "B", "tie", turns=3),
    ]
    await _import(arena, votes)

    counts = {board: (await _board(arena, board=board)).num_votes for board in BOARDS}

    assert counts == {"overall": 2, "decisive": 1, "multi_turn": 1, "named": 1}


async def test_a_record_of_a_model_against_itself_does_not_stop_the_board(arena: Arena) -> None:
    await _import(arena, [make_vote(1, "A", "A", "a"), *known_log()])

    assert (await _board(arena)).num_votes == 22


async def test_every_controller_shows_the_same_board(arena: Arena) -> None:
    await _import(arena, known_log())
    other = await arena.add_controller()

    first, second = [(await client.get("/arena/leaderboard")).json() for client in (arena.client, other)]

    assert first["rows"] == second["rows"]


async def test_a_log_that_was_replaced_is_folded_anew(arena: Arena) -> None:
    await _import(arena, known_log())
    assert (await _board(arena)).num_votes == 22
    await arena.redis.delete(arena.keys.votes)

    async def empty() -> bool:
        return (await _board(arena)).num_votes == 0

    await eventually(empty)


@pytest.mark.parametrize(
    "params", [{"board": "nonsense"}, {"min_votes": "-1"}, {"style_control": "perhaps"}, {"fit": "x"}, {"anchor": "X"}]
)
async def test_a_question_that_makes_no_sense_is_refused(arena: Arena, params: dict[str, str]) -> None:
    response = await arena.client.get("/arena/leaderboard", params=params)

    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


async def test_the_votes_of_a_flagged_voter_leave_the_live_board_and_come_back(arena: Arena) -> None:
    votes = [make_vote(100 + n, "A", "B", "a", voter="rigger") for n in range(5)]
    await _import(arena, [*known_log(), *votes, make_judgement(200, "flag", voter="rigger")])
    flagged = await _board(arena)
    await _import(arena, [make_judgement(300, "unflag", voter="rigger")])

    assert (flagged.num_votes, flagged.unrated) == (22, {"anomalous_voter": 5})
    assert (await _board(arena)).num_votes == 27


async def test_revisions_of_a_model_stand_apart(arena: Arena) -> None:
    """Defect 12: votes of two checkpoints under one name were pooled."""
    old, new = ({"a": VotedSide(model="A", revision=digit * 64)} for digit in "12")
    votes = [make_vote(n, "A", "B", "a", **old) for n in range(1, 4)]
    votes += [make_vote(n, "A", "B", "b", **new) for n in range(4, 6)]
    await _import(arena, votes)

    rows = {row.model: row for row in (await _board(arena)).rows}

    assert {name: (row.votes, row.wins) for name, row in rows.items()} == {
        "A": (2, 0),
        "A@11111111": (3, 3),
        "B": (5, 2),
    }
    assert rows["A"].revision == "2" * 64


class _SlowLog:
    """A log that takes five seconds to read; a vote comes right after the reading has begun."""

    def __init__(self) -> None:
        self.now = 100.0
        self.votes = [make_vote(1, "A", "B", "a")]

    async def state(self, after: str = LOG_START, count: int = 1000) -> LogState:
        read = list(self.votes)
        self.votes.append(make_vote(len(self.votes) + 1, "A", "B", "a"))
        self.now += 5.0
        new = [vote for vote in read if entry_order(vote.vote_id) > entry_order(after)]
        entries = tuple(LogEntry(vote.vote_id, vote.battle_id, 0, stored(vote), None) for vote in new)
        return LogState(None, "", None, 0, len(read), read[-1].vote_id, entries)


async def test_a_board_lacks_no_vote_that_is_older_than_promised() -> None:
    """Defect 7: the age counted from the end of folding, so that a board lacked votes of the seconds before."""
    log, metrics = _SlowLog(), Metrics()
    boards = Leaderboards(
        cast(VoteLog, log),
        metrics,
        ModelCards(Store(parse_address("unix:///nowhere"), timeout_s=1.0, metrics=metrics), Keys("p"), lambda: 0.0),
        models=tuple,
        clock=lambda: 0.0,
        refresh_s=1.0,
        fitter=Fitter(None),
        days=FittedDays(None),
        now=lambda: log.now,
    )
    await boards.refresh()
    log.now += 0.5  # since the end of the first reading; 5.5 s since the second vote came

    view = LeaderboardView.model_validate_json(await boards.view(BoardQuery(), visitor="v"))

    assert view.num_votes == 2


async def test_an_anchor_is_shown_and_holds_the_scale(open_arena: OpenArena) -> None:
    """Defect 10: the scale moved with every newcomer."""
    async with open_arena(board_anchor=("A",)) as arena:
        await _import(arena, known_log())
        before = await _board(arena, min_votes=0)
        await _import(arena, [make_vote(100 + n, "Z", "ABCD"[n % 4], "ab"[n % 5 > 0]) for n in range(40)])
        after = await _board(arena, min_votes=0)
        asked = await _board(arena, min_votes=0, anchor="B, C")

    ratings = [{row.model: row.rating for row in board.rows} for board in (before, after, asked)]
    assert (before.anchor, asked.anchor) == (("A",), ("B", "C"))
    assert ratings[0]["A"] == ratings[1]["A"] == pytest.approx(1000.0)
    assert (ratings[2]["B"] + ratings[2]["C"]) / 2 == pytest.approx(1000.0)


async def test_neighbours_have_statements_and_votes_still_needed(arena: Arena) -> None:
    await _import(arena, [make_vote(n, "A", "B", "b" if n % 10 else "a") for n in range(1, 400)])
    await _import(arena, [make_vote(n, "B", "C", "a" if n % 2 else "b") for n in range(400, 800)])

    by_pair = {(said.above, said.below): said for said in (await _board(arena)).statements}

    assert by_pair["C", "A"].is_decided or by_pair["B", "A"].is_decided
    undecided = by_pair.get(("B", "C")) or by_pair["C", "B"]
    assert not undecided.is_decided


@pytest.mark.parametrize(
    "params",
    [
        {"fit": "rao_kupper"},
        {"weighting": "propensity"},
        {"weighting": "voters", "style_control": "true"},
        {"fit": "rao_kupper", "style_control": "true", "anchor": "A"},
    ],
    ids=["rao_kupper", "propensity", "voters", "all"],
)
async def test_every_way_to_fit_is_a_board(arena: Arena, params: dict[str, str]) -> None:
    votes = [make_vote(n, "AB"[n % 2], "CD"[n % 3 % 2], "ab"[n % 5 < 2], voter=f"v{n % 7}") for n in range(1, 200)]
    await _import(arena, [vote.model_copy(update={"probability": 0.25}) for vote in votes])
    view = await _board(arena, **params)

    assert view.num_votes == 199
    assert (view.fit, view.weighting) == (params.get("fit", "bradley_terry"), params.get("weighting", "votes"))
    assert view.position_bias is not None
    assert (view.propensity is not None) == (view.weighting == "propensity")
