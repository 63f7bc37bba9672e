"""Rating over time and groups of voters side by side."""

from pathlib import Path
from typing import Any

import pytest

from controller.votes.boards.board_view import BoardQuery, fold_log, view_of
from controller.votes.boards.board_votes import contestant_names
from controller.votes.boards.cohort_view import compare_groups
from controller.votes.boards.history import DAY_S, FittedDays, daily_counts
from tests.controller.support.arena import Arena
from tests.controller.votes.boards.votes import make_judgement, make_vote
from wire.judgements import Judgement
from wire.leaderboard import CohortView, HistoryDay, HistoryView
from wire.votes import VoteRecord

NOW = 9.5 * DAY_S


def _votes() -> list[VoteRecord]:
    """Forty votes a day on the days 0 to 4, by two voters."""
    return [
        make_vote(n + 1, "ABC"[n % 3], "BCA"[n % 3], "ab"[n % 5 < 2], voter=f"v{n % 2}", cohort=f"c{n % 2}").model_copy(
            update={"time": n // 40 * DAY_S + n % 40}
        )
        for n in range(200)
    ]


def _history(log: list[VoteRecord | Judgement], **kwargs: Any) -> tuple[HistoryDay, ...]:
    votes = fold_log(log)
    days = daily_counts("overall", votes, num_days=kwargs.pop("num_days", 100), now=NOW)
    return FittedDays(kwargs.pop("folder", None)).fit(days, contestant_names(votes), ())


def test_each_day_is_the_board_of_the_votes_up_to_then() -> None:
    votes = _votes()
    days = _history(list(votes))

    assert [day.day for day in days] == [f"1970-01-{number:02}" for number in range(1, 11)]
    assert [day.num_votes for day in days] == [40] * 5 + [0] * 5
    for number, day in enumerate(days):
        board = view_of(BoardQuery(), fold_log(votes[: 40 * (number + 1)]), updated_at=0.0)
        assert board is not None
        assert [(row.model, row.rating, row.lower, row.upper, row.votes) for row in day.rows] == [
            (row.model, row.rating, row.lower, row.upper, row.votes) for row in board.rows
        ]


def test_a_judgement_counts_from_its_day_on() -> None:
    votes, time = _votes(), 2 * DAY_S + 5
    judged = make_judgement(999, "flag", voter="v1").model_copy(update={"time": time})
    plain, flagged = _history(list(votes)), _history([*votes, judged])

    assert flagged[:2] == plain[:2]
    assert [day.num_votes for day in flagged[2:5]] == [20, 20, 20]
    assert [row.votes for row in flagged[4].rows] != [row.votes for row in plain[4].rows]


def test_only_the_last_days_are_shown_with_all_votes_before() -> None:
    days = _history(list(_votes()), num_days=7)

    assert days == _history(list(_votes()))[3:]


def test_fitted_days_are_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _history(list(_votes()), folder=tmp_path)
    monkeypatch.setattr("controller.votes.boards.history.fit_day", None)  # a fit would fail

    assert _history(list(_votes()), folder=tmp_path) == first


def test_a_damaged_file_of_days_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text("{")

    assert len(_history(list(_votes()), folder=tmp_path)) == 10


def test_groups_that_like_different_models_differ() -> None:
    votes = []
    for n in range(1200):
        group, outcome = n % 2, "ab"[(n // 2 + n % 2) % 5 < 2] if n % 2 else "ba"[(n // 2) % 5 < 2]
        votes.append(make_vote(n, "A", "BC"[n // 2 % 2], outcome, cohort=f"c{group}"))
    view = compare_groups("c0", "c1", fold_log(votes))

    assert view is not None
    [row] = [row for row in view.rows if row.model == "A"]
    assert view.num_votes == (600, 600)
    assert row.lower is not None
    assert row.upper is not None
    assert row.lower > 0 or row.upper < 0
    assert row.difference == pytest.approx((row.first or 0) - (row.second or 0))


def test_a_group_does_not_differ_from_itself() -> None:
    view = compare_groups("c0", "c0", fold_log(_votes()))

    assert view is not None
    assert [row.difference for row in view.rows] == pytest.approx([0.0] * 3)
    assert compare_groups("c0", "unheard of", fold_log(_votes())) is None


async def test_history_and_comparison_over_http(arena: Arena) -> None:
    body = b"\n".join(vote.model_dump_json().encode() for vote in _votes())
    await arena.client.post("/arena/votes/import", content=body, headers=arena.admin)

    history = await arena.client.get("/arena/leaderboard/history", params={"days": 3})
    cohorts = await arena.client.get("/arena/leaderboard/cohorts", params={"first": "c0", "second": "decisive"})
    unknown = await arena.client.get("/arena/leaderboard/cohorts", params={"first": "c0", "second": "c9"})

    assert len(HistoryView.model_validate_json(history.content).days) == 3  # the votes are of 1970
    assert CohortView.model_validate_json(cohorts.content).num_votes == (100, 200)
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "second")
