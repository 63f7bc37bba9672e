"""From the votes of a board to the leaderboard that clients see: the fit, and its translation to wire types. Pure.

Runs in a thread of the controller, in its fit process, and in `agon leaderboard --recompute`, with the same result to
the last digit.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

from controller.votes.boards.board_votes import BoardVotes, offered_boards, rated_votes, scope_of
from controller.votes.boards.vote_table import TableSnapshot, VoteTable
from ratings.bradley_terry import POINTS
from ratings.options import FitOptions, needs_columns
from ratings.ranking import Leaderboard, rank_board
from ratings.sequential import neighbour_statements
from wire.leaderboard import (
    FitModel,
    LeaderboardRow,
    LeaderboardView,
    PositionBias,
    PropensityDiagnostics,
    Statement,
    StyleCoefficient,
    Weighting,
)
from wire.log_records import LogRecord

MIN_VOTES: Final = 30  #: a model with fewer votes is flagged, unless the request says otherwise
PIECE: Final = 1000  #: votes that are added to a table at once


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """A question for a board. `anchor`: the models whose mean rating is 1000; None: those of the arena, as far as the
    board has them."""

    board: str = "overall"
    style_control: bool = False
    min_votes: int = MIN_VOTES
    fit: FitModel = "bradley_terry"
    weighting: Weighting = "votes"
    anchor: tuple[str, ...] | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns that the fit needs besides the models and the outcome; none: pair counts are enough."""
        style = ("covariates", "has_style") if self.style_control else ()
        weighting: dict[Weighting, tuple[str, ...]] = {"propensity": ("probability",), "voters": ("voter",)}
        return (*style, *weighting.get(self.weighting, ()))


@dataclass(frozen=True, eq=False)
class BoardJob:
    """A question with all that answers it. `frame` is the answer without what the fit adds."""

    query: BoardQuery
    votes: BoardVotes
    frame: LeaderboardView

    def options(self) -> FitOptions:
        """What to fit."""
        query = self.query
        anchor = query.anchor
        if anchor is None:
            anchor = tuple(model for model in self.frame.anchor if model in self.votes.models)
        return FitOptions(query.fit, query.style_control, query.weighting, anchor, query.min_votes)


def board_job(
    query: BoardQuery,
    votes: TableSnapshot,
    *,
    models: Iterable[str],
    updated_at: float,
    anchor: tuple[str, ...] = (),
    extras: Mapping[str, Any] | None = None,
) -> BoardJob | None:
    """The question and its votes; None if there is no such board. `models` adds models without a vote, `updated_at` is
    the store's Unix time, `anchor` the arena's; `extras` are fields of the view that the votes do not tell."""
    if scope_of(query.board, votes) is None:
        return None
    rated = rated_votes(query.board, votes, names=tuple(models), reads=query.reads)
    frame = LeaderboardView(
        **(extras or {}),
        board=query.board,
        num_votes=rated.num_votes,
        last_vote_id=votes.last_vote_id,
        updated_at=updated_at,
        rows=(),
        boards=offered_boards(votes),
        style_controlled=query.style_control,
        fit=query.fit,
        weighting=query.weighting,
        anchor=anchor,
        unrated=rated.unrated,
        num_unrated=rated.num_unrated,
    )
    return BoardJob(query, rated, frame)


def fit_board(job: BoardJob) -> LeaderboardView:
    """Fit and rank: 0.05 s from pair counts, some seconds for each million votes that are read one by one. Raises
    UnknownModelError for an anchor that is not on the board."""
    options = job.options()
    columns = job.votes.vote_columns() if needs_columns(options) else None
    ranked = rank_board(job.votes.counts(), columns, options, models=job.votes.models)
    return job.frame.model_copy(update=_fitted(ranked, job.votes.revisions))


def fold_log(entries: Iterable[LogRecord]) -> TableSnapshot:
    """The table of a whole log."""
    table = VoteTable()
    rest = iter(entries)
    while piece := tuple(islice(rest, PIECE)):
        table.extend(piece)
    return table.snapshot()


def view_of(
    query: BoardQuery,
    votes: TableSnapshot,
    *,
    models: Iterable[str] = (),
    updated_at: float,
    anchor: tuple[str, ...] = (),
) -> LeaderboardView | None:
    """`board_job` and `fit_board` at once."""
    job = board_job(query, votes, models=models, updated_at=updated_at, anchor=anchor)
    return None if job is None else fit_board(job)


def _fitted(ranked: Leaderboard, revisions: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a view that a fit gives."""
    unflagged = [row.model for row in ranked.rows if not row.flags]
    statements = neighbour_statements(unflagged, ranked.models, ranked.strengths, ranked.covariance, ranked.num_votes)
    bias, propensity = ranked.position_bias, ranked.propensity
    return {
        "num_votes": ranked.num_votes,
        "rows": tuple(
            LeaderboardRow(**{**asdict(row), "revision": revisions.get(row.model) or None}) for row in ranked.rows
        ),
        "win_rate": ranked.win_rate,
        "battle_count": ranked.battle_count,
        "predicted": ranked.predicted,
        "coefficients": tuple(
            StyleCoefficient(
                feature=coefficient.feature,
                points=coefficient.points,
                lower=_points(coefficient.lower),
                upper=_points(coefficient.upper),
            )
            for coefficient in ranked.coefficients
        ),
        "anchor": ranked.anchor,
        "tie_points": ranked.tie_points,
        "position_bias": None if bias is None else PositionBias(**asdict(bias)),
        "propensity": None if propensity is None else PropensityDiagnostics(**asdict(propensity)),
        "statements": tuple(Statement(**asdict(statement)) for statement in statements),
    }


def _points(bound: float) -> float | None:
    return float(POINTS * bound) if math.isfinite(bound) else None
