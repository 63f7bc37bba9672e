"""The leaderboard: ratings, intervals, ranks and matrices, and a flag wherever the votes cannot support a number.

The controller calls `rank_models` with the counts it keeps; everything returned is an immutable value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from ratings.bradley_terry import CENTER, NORMAL_975, PAIR_FLOOR, POINTS, Fit, fit_bradley_terry
from ratings.errors import UnknownModelError
from ratings.graph import IntArray
from ratings.influence import votes_to_overtake
from ratings.outcomes import FloatArray, PairCounts, Tally
from ratings.style import COEFFICIENT_PENALTY, Coefficient, VoteColumns, fit_style

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

MIN_VOTES = 30  #: simulated 95 % intervals cover 93 % at 10 votes per model and 94 to 95 % from 30 on

# An interval this much narrower than decisive votes could make it rests on a bridge of ties, which have no scatter. A
# share t of ties narrows an interval by sqrt(1 - t) only, and a board of two models by one half.
_TIES_ONLY = 0.05


@dataclass(frozen=True, slots=True)
class LeaderboardRow:
    """One model. Where `flags` is not empty the bounds are None and the rank is provisional.

    `rank` is 1 + the number of models whose lower bound is above this upper bound, `worst_rank` the place if every
    overlapping model were better. A flagged row is ranked by its rating instead of a bound, and lowers no other rank.
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
    """Rows by falling rating. Matrices follow the order of the rows; a rate is None where two models never met."""

    rows: tuple[LeaderboardRow, ...]
    num_votes: int
    win_rate: RateMatrix
    battle_count: CountMatrix
    predicted: RateMatrix
    coefficients: tuple[Coefficient, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """Names in the order of the rows."""
        return tuple(row.model for row in self.rows)


def rank_models(
    counts: PairCounts,
    *,
    models: Sequence[str] = (),
    anchor: str | None = None,
    min_votes: int = MIN_VOTES,
    reweighted: bool = False,
    pair_floor: int = PAIR_FLOOR,
    flips: bool = True,
) -> Leaderboard:
    """Fit and rank. `models` adds models that have no vote yet; `anchor` is shifted to 1000 with all others, else the
    mean of the unflagged models is 1000. Ties of both kinds are half a win; pass `counts.without(...)` to leave them
    out. `votes_to_flip` takes most of the time, `flips=False` leaves it out; a reweighted board never has it."""
    names = sorted({*models, *counts.models})
    fit = fit_bradley_terry(counts.tally(names), reweighted=reweighted, pair_floor=pair_floor)
    return _board(fit, anchor, min_votes, with_flips=flips and not reweighted)


def rank_with_style(
    votes: VoteColumns,
    *,
    anchor: str | None = None,
    min_votes: int = MIN_VOTES,
    reweighted: bool = False,
    pair_floor: int = PAIR_FLOOR,
    penalty: float = COEFFICIENT_PENALTY,
) -> Leaderboard:
    """The same board at equal style, with the coefficients. It has no `votes_to_flip`."""
    style = fit_style(votes, reweighted=reweighted, pair_floor=pair_floor, penalty=penalty)
    return _board(style.fit, anchor, min_votes, with_flips=False, coefficients=style.coefficients)


def _board(
    fit: Fit, anchor: str | None, min_votes: int, *, with_flips: bool, coefficients: tuple[Coefficient, ...] = ()
) -> Leaderboard:
    if anchor is not None and anchor not in fit.models:
        raise UnknownModelError(anchor)
    fit, flags = _judge(fit, min_votes)
    trusted = np.array([not row for row in flags], dtype=bool)
    ratings = fit.ratings if anchor is None else fit.ratings - fit.ratings[fit.models.index(anchor)] + CENTER
    half_widths = np.where(trusted, fit.half_widths, np.nan)
    lower, upper = ratings - half_widths, ratings + half_widths
    rank, worst_rank = _ranks(ratings, lower, upper)
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
    np.fill_diagonal(predicted := fit.predicted, np.nan)
    return Leaderboard(
        rows=rows,
        num_votes=round(battles.sum() / 2),
        win_rate=_rate_matrix(rates, order),
        battle_count=tuple(tuple(int(battles[i, j]) for j in order) for i in order),
        predicted=_rate_matrix(predicted, order),
        coefficients=coefficients,
    )


def _judge(fit: Fit, min_votes: int) -> tuple[Fit, list[tuple[Flag, ...]]]:
    """Flags of every model, and the fit measured against the mean of those without any."""
    flags = _flags(fit, min_votes)
    trusted = np.array([not row for row in flags], dtype=bool)
    if trusted.sum() > 1:  # against itself a single model would have no width
        fit = fit.recentred(trusted)
    for i in np.flatnonzero(trusted & (fit.half_widths < _TIES_ONLY * _sharpest_half_widths(fit))):
        flags[i] = ("only_ties",)
    return fit, flags


def _ranks(ratings: FloatArray, lower: FloatArray, upper: FloatArray) -> tuple[IntArray, IntArray]:
    """Best and worst rank. A comparison with NaN is false: rows without an interval lower no other rank."""
    best_case, worst_case = (np.where(np.isnan(bound), ratings, bound) for bound in (upper, lower))
    others = ~np.eye(len(ratings), dtype=bool)
    best = 1 + (others & (lower[None, :] > best_case[:, None])).sum(axis=1)
    worst = 1 + (others & (upper[None, :] >= worst_case[:, None])).sum(axis=1)
    return best, worst


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
