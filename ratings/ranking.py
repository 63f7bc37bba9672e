"""The leaderboard: ratings, intervals, ranks and matrices, and a flag wherever the votes cannot support a number.

The controller calls `rank_board` with the counts and columns it keeps; everything returned is an immutable value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Literal

import numpy as np

from ratings.bradley_terry import NORMAL_975, POINTS, Fit, fit_bradley_terry
from ratings.errors import UnknownModelError
from ratings.graph import BoolArray, IntArray
from ratings.influence import votes_to_overtake
from ratings.options import MIN_VOTES, FitOptions, needs_columns
from ratings.outcomes import FloatArray, PairCounts, Tally
from ratings.position import PositionBias, position_bias
from ratings.rao_kupper import fit_rao_kupper
from ratings.style import Coefficient, StyleFit, VoteColumns, fit_votes
from ratings.weights import (
    PropensityDiagnostics,
    diagnose_propensity,
    propensity_weights,
    voter_covariance,
    voter_weights,
)

Flag = Literal[
    "no_votes",  # the rating is the centre of the board and means nothing
    "too_few_votes",  # fewer than min_votes against comparable models
    "never_lost",  # no loss and no tie: any higher rating would fit as well
    "never_won",  # no win and no tie
    "only_ties",  # against comparable models; the sandwich would claim a width near zero
    "one_sided",  # a group that took, or gave, every point against the rest
    "disconnected",  # no chain of battles leads to the rest
]
RateMatrix = tuple[tuple[float | None, ...], ...]
CountMatrix = tuple[tuple[int, ...], ...]

RANK_CONFIDENCE = 0.95  #: all ranks of a board are in their ranges at the same time with this probability

# An interval this much narrower than decisive votes could make it rests on a bridge of ties, which have no scatter. A
# share t of ties narrows an interval by sqrt(1 - t) only, and a board of two models by one half.
_TIES_ONLY = 0.05


@dataclass(frozen=True, slots=True)
class LeaderboardRow:
    """One model. Where `flags` is not empty the bounds are None and the rank is provisional.

    `rank` is 1 + the number of models that are better for certain, `worst_rank` the place if every model that is not
    worse for certain were better. That is decided by the intervals of the differences, which are true for all pairs of
    the board at once with probability RANK_CONFIDENCE. A flagged row is ranked by its rating, and lowers no other rank.
    `ties` counts ties of both kinds, `both_bad` those of the second kind. `win_rate` averages over opponents.
    `votes_to_flip`: one-sided votes against the next unflagged model below after which it would stand above this one.
    """

    model: str
    rating: float
    lower: float | None
    upper: float | None
    rank: int
    worst_rank: int
    votes: int
    wins: int
    losses: int
    ties: int
    both_bad: int
    win_rate: float | None
    votes_to_flip: int | None
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Rows by falling rating. Matrices follow the order of the rows; a rate is None where two models never met.

    `anchor` are the models whose mean is 1000 and against which intervals are, as far as the votes support them; none:
    all unflagged models. `tie_points`: so many points ahead a model wins half of its votes (Rao-Kupper; None: another
    fit, or only ties). `strengths` and `covariance` are in log units against the anchor, in the order of the rows, NaN
    in rows and columns of flagged models.
    """

    rows: tuple[LeaderboardRow, ...]
    num_votes: int
    win_rate: RateMatrix
    battle_count: CountMatrix
    predicted: RateMatrix
    coefficients: tuple[Coefficient, ...] = ()
    anchor: tuple[str, ...] = ()
    tie_points: float | None = None
    position_bias: PositionBias | None = None
    propensity: PropensityDiagnostics | None = None
    strengths: FloatArray = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)
    covariance: FloatArray = field(default_factory=lambda: np.zeros((0, 0)), compare=False, repr=False)

    @property
    def models(self) -> tuple[str, ...]:
        """Names in the order of the rows."""
        return tuple(row.model for row in self.rows)


def rank_models(counts: PairCounts, *, models: Sequence[str] = (), min_votes: int = MIN_VOTES) -> Leaderboard:
    """The board with the default options: Bradley-Terry, every vote weighs one. `models` adds models without a vote.
    Pass `counts.without(...)` to leave ties out."""
    return rank_board(counts, None, FitOptions(min_votes=min_votes), models=models)


def rank_board(
    counts: PairCounts, columns: VoteColumns | None, options: FitOptions, *, models: Sequence[str] = ()
) -> Leaderboard:
    """Fit and rank. `columns` are the votes of `counts`, one by one; None will do where `needs_columns(options)` is
    false. `models` adds models that have no vote. Raises UnknownModelError for an anchor that is in neither, ValueError
    without columns that are needed, ConvergenceError."""
    names = sorted({*models, *counts.models, *(columns.models if columns is not None else ())})
    for anchor in options.anchor:
        if anchor not in names:
            raise UnknownModelError(anchor)
    tally = counts.tally(names)
    propensity = None
    if not needs_columns(options):
        fit = fit_bradley_terry(tally) if options.fit == "bradley_terry" else fit_rao_kupper(tally)
        style = StyleFit(fit, ())
    elif columns is None:
        raise ValueError("style and weighting need the votes as columns")
    else:
        style, propensity = _fit_columns(columns.over(names), options)
    fit, flags, anchored = _judge(style.fit, options)
    with_flips = options.fit == "bradley_terry" and not needs_columns(options)
    rows, order = _rows(fit, flags, with_flips=with_flips)
    trusted = [not flags[i] for i in order]
    battles = tally.battles
    np.fill_diagonal(predicted := fit.predicted, np.nan)
    return Leaderboard(
        rows=rows,
        num_votes=counts.num_votes,
        win_rate=_rate_matrix(_win_rates(tally), order),
        battle_count=tuple(map(tuple, battles[np.ix_(order, order)].astype(np.int64).tolist())),
        predicted=_rate_matrix(predicted, order),
        coefficients=style.coefficients,
        anchor=anchored,
        tie_points=_tie_points(fit) if options.fit == "rao_kupper" else None,
        position_bias=position_bias(fit),
        propensity=propensity,
        strengths=np.where(trusted, fit.strengths[order], np.nan),
        covariance=np.where(np.outer(trusted, trusted), fit.covariance[np.ix_(order, order)], np.nan),
    )


def _fit_columns(columns: VoteColumns, options: FitOptions) -> tuple[StyleFit, PropensityDiagnostics | None]:
    if options.weighting == "votes":
        return fit_votes(columns, fit=options.fit, style=options.style), None
    if options.weighting == "propensity":
        weights = propensity_weights(columns)
        style = fit_votes(columns, fit=options.fit, style=options.style, weights=weights)
        return style, diagnose_propensity(columns, weights)
    weights = voter_weights(columns)
    style = fit_votes(columns, fit=options.fit, style=options.style, weights=weights)
    if options.fit == "bradley_terry" and not options.style:
        covariance = voter_covariance(columns, weights, style.fit)
        style = replace(style, fit=replace(style.fit, covariance=covariance))
    return style, None


def _rows(fit: Fit, flags: list[tuple[Flag, ...]], *, with_flips: bool) -> tuple[tuple[LeaderboardRow, ...], list[int]]:
    """The rows, and the positions of their models in `fit`."""
    trusted = np.array([not row for row in flags], dtype=bool)
    ratings = fit.ratings
    half_widths = np.where(trusted, fit.half_widths, np.nan)
    lower, upper = ratings - half_widths, ratings + half_widths
    rank, worst_rank = _ranks(fit, trusted, lower, upper)
    # Rounded, so that equal models stand by name and not by the last digit of the solver.
    order = sorted(range(len(ratings)), key=lambda i: (-ratings[i].round(6), fit.models[i]))
    flips = _flips(fit, [i for i in order if trusted[i]]) if with_flips else {}
    tally, battles, rates = fit.tally, fit.tally.battles, _win_rates(fit.tally)
    rows = tuple(
        LeaderboardRow(
            model=fit.models[i],
            rating=float(ratings[i]),
            lower=_known(lower[i]),
            upper=_known(upper[i]),
            rank=int(rank[i]),
            worst_rank=int(worst_rank[i]),
            votes=int(battles[i].sum()),
            wins=int(tally.wins[i].sum()),
            losses=int(tally.wins[:, i].sum()),
            ties=int(tally.draws[i].sum()),
            both_bad=int(tally.both_bad[i].sum()),
            win_rate=float(rates[i][battles[i] > 0].mean()) if battles[i].any() else None,
            votes_to_flip=flips.get(i),
            flags=flags[i],
        )
        for i in order
    )
    return rows, order


def _judge(fit: Fit, options: FitOptions) -> tuple[Fit, list[tuple[Flag, ...]], tuple[str, ...]]:
    """Flags of every model, the fit measured against the anchor, and the anchor.

    Anchor models that have votes in the core carry the scale, however few: a flag must not move it. Without any, the
    mean of the unflagged models does.
    """
    flags = _flags(fit, options.min_votes)
    trusted = np.array([not row for row in flags], dtype=bool)
    if trusted.sum() > 1:  # against itself a single model would have no width
        fit = fit.recentred(trusted)
    for i in np.flatnonzero(trusted & (fit.half_widths < _TIES_ONLY * _sharpest_half_widths(fit))):
        flags[i] = ("only_ties",)
    reference = np.isin(fit.models, options.anchor) & fit.groups.core
    if reference.any():
        fit = fit.recentred(reference)
    return fit, flags, tuple(fit.models[i] for i in np.flatnonzero(reference))


def _ranks(fit: Fit, trusted: BoolArray, lower: FloatArray, upper: FloatArray) -> tuple[IntArray, IntArray]:
    """Best and worst rank of each model.

    The intervals of all m differences are widened to the level of Sidak, 0.95^(1/m), which holds for any covariance of
    normal estimates; the ranks that they leave open are then right for the whole board at once (Mogstad, Romano, Shaikh
    and Wilhelm, 2024). Comparisons with NaN are false, so that flagged rows change no other rank.
    """
    num_trusted = int(trusted.sum())
    num_pairs = num_trusted * (num_trusted - 1) // 2
    variance = np.diag(fit.covariance)
    spread = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2.0 * fit.covariance, 0.0))
    spread = np.where(np.outer(trusted, trusted), spread, np.nan)
    limit = NormalDist().inv_cdf(0.5 + 0.5 * RANK_CONFIDENCE ** (1.0 / max(num_pairs, 1)))
    # Rounding leaves a spread of 1e-9 to two models whose strengths are equal for certain, by ties alone.
    above = fit.strengths[:, None] - fit.strengths[None, :] > limit * spread + 1e-6
    best, worst = 1 + above.sum(axis=0), num_trusted - above.sum(axis=1)
    for i in np.flatnonzero(~trusted):
        rating = fit.ratings[i]
        best[i], worst[i] = 1 + (lower > rating).sum(), 1 + (upper >= rating).sum()
    return best.astype(np.int64), worst.astype(np.int64)


def _tie_points(fit: Fit) -> float | None:
    inside = np.ix_(fit.groups.core, fit.groups.core)
    has_wins = fit.tally.wins[inside].any()
    return POINTS * fit.tie_width if has_wins else None


def _flags(fit: Fit, min_votes: int) -> list[tuple[Flag, ...]]:
    tally, groups = fit.tally, fit.groups
    num_votes = tally.battles.sum(axis=1)
    num_wins, num_losses = tally.wins.sum(axis=1), tally.wins.sum(axis=0)
    voted = num_votes > 0
    # Inside the core only votes inside the core support the interval: 20 losses of 20 to a model outside say nothing.
    num_evidence, num_ties = (
        np.where(groups.core, counted @ groups.core, counted.sum(axis=1)) for counted in (tally.battles, tally.draws)
    )
    core_island = groups.islands[groups.core][:1]  # empty without a core
    several_islands = len(np.unique(groups.islands[voted])) > 1

    def of_model(i: int) -> tuple[Flag, ...]:
        if not voted[i]:
            return ("no_votes",)
        flags: list[Flag] = []
        if num_evidence[i] < min_votes:
            flags.append("too_few_votes")
        if num_wins[i] == num_votes[i]:
            flags.append("never_lost")
        elif num_losses[i] == num_votes[i]:
            flags.append("never_won")
        elif num_ties[i] == num_evidence[i]:
            flags.append("only_ties")
        if not groups.core[i]:
            apart = groups.islands[i] != core_island[0] if len(core_island) else several_islands
            if apart:
                flags.append("disconnected")
            elif "never_lost" not in flags and "never_won" not in flags:
                flags.append("one_sided")
        return tuple(flags)

    return [of_model(i) for i in range(len(fit.models))]


def _sharpest_half_widths(fit: Fit) -> FloatArray:
    """Half widths if each vote of a model were decisive, against an equal whose strength is known."""
    num_votes = np.maximum(fit.tally.battles.sum(axis=1), 1.0)
    half_widths: FloatArray = NORMAL_975 * POINTS * 2.0 / np.sqrt(num_votes)
    return half_widths


def _flips(fit: Fit, trusted_order: list[int]) -> dict[int, int]:
    return {i: votes_to_overtake(fit, fit.models[i], fit.models[j]) for i, j in pairwise(trusted_order)}


def _win_rates(tally: Tally) -> FloatArray:
    battles = tally.battles
    return np.where(battles > 0, tally.scores / np.maximum(battles, 1.0), np.nan)


def _rate_matrix(values: FloatArray, order: list[int]) -> RateMatrix:
    return tuple(tuple(_known(values[i, j]) for j in order) for i in order)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
