"""Where boards are fitted: the fit process gives what a thread gives, and may die."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from controller.votes.boards.board_view import BoardJob, BoardQuery, board_job, fit_board, fold_log
from controller.votes.boards.fitter import Fitter
from tests.controller.votes.boards.votes import make_vote
from wire.errors import ApiError
from wire.leaderboard import LeaderboardView


def _job(query: BoardQuery) -> BoardJob:
    votes = [
        make_vote(n, "ABCD"[n % 4], "ABCD"[(n + 1 + n % 3) % 4], "ab"[n % 7 < 3], voter=f"v{n % 9}", probability=0.25)
        for n in range(1, 400)
        if (n + 1 + n % 3) % 4 != n % 4
    ]
    job = board_job(query, fold_log(votes), models=("E",), updated_at=5.0, anchor=("A", "not here"))
    assert job is not None
    return job


@pytest.fixture
async def fitter(tmp_path: Path) -> AsyncGenerator[Fitter, None]:
    """One whose process gets every fit that reads votes."""
    fitter = Fitter(tmp_path, thread_votes=0)
    yield fitter
    await fitter.close()
    assert list(tmp_path.iterdir()) == []


async def test_the_fit_process_gives_the_digits_of_a_thread(fitter: Fitter) -> None:
    for query in (
        BoardQuery(style_control=True),
        BoardQuery(style_control=True, min_votes=200),
        BoardQuery(weighting="propensity", fit="rao_kupper", anchor=("B", "C")),
        BoardQuery(weighting="voters"),
    ):
        job = _job(query)
        body = await fitter.fit(job, "votes" + str(query.reads))

        assert LeaderboardView.model_validate_json(body) == fit_board(job)


async def test_a_fit_process_that_was_killed_is_started_again(fitter: Fitter) -> None:
    job = _job(BoardQuery(style_control=True))
    first = await fitter.fit(job, "votes")
    process = fitter._process
    assert process is not None
    process.kill()
    await process.wait()

    assert await fitter.fit(job, "votes") == first


@pytest.mark.parametrize("style_control", [False, True])
async def test_an_anchor_that_is_not_on_the_board_is_refused(fitter: Fitter, style_control: bool) -> None:
    job = _job(BoardQuery(style_control=style_control, anchor=("nobody",)))

    with pytest.raises(ApiError, match="anchor names 'nobody'"):
        await fitter.fit(job, "votes")
