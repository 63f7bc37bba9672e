"""Bootstrap intervals, as a cross-check of the sandwich: they assume neither a large sample nor symmetry.

Votes that agree in pair and outcome are interchangeable, so a resample of N votes is one multinomial draw over the
cells.
"""

from dataclasses import dataclass

import numpy as np

from ratings.bradley_terry import CENTER, GROUP_RIDGE, POINTS, fit_bradley_terry, fit_groups, place_groups
from ratings.graph import BoolArray, find_groups
from ratings.outcomes import FloatArray, PairCounts, Tally


@dataclass(frozen=True, eq=False)
class BootstrapIntervals:
    """Percentile intervals on the board's scale, NaN outside the core of the comparison graph."""

    models: tuple[str, ...]
    lower: FloatArray
    upper: FloatArray


def bootstrap_intervals(
    counts: PairCounts | Tally,
    rng: np.random.Generator,
    *,
    rounds: int = 200,
    confidence: float = 0.95,
) -> BootstrapIntervals:
    """Refit `rounds` resamples."""
    fit = fit_bradley_terry(counts)
    core = fit.groups.core
    lower, upper = (np.full(len(fit.models), np.nan) for _ in range(2))
    if core.any():
        draws = np.stack([_refit(resample, core) for resample in _resamples(fit.tally, rng, rounds)])
        tail = (1.0 - confidence) / 2.0
        lower[core], upper[core] = CENTER + POINTS * np.quantile(draws, [tail, 1.0 - tail], axis=0)
    return BootstrapIntervals(fit.models, lower, upper)


def _resamples(tally: Tally, rng: np.random.Generator, rounds: int) -> list[FloatArray]:
    """Score matrices of the resamples."""
    upper = np.triu_indices(len(tally.models), 1)
    cells = np.concatenate([tally.wins[upper], tally.wins.T[upper], tally.draws[upper]])
    num_votes = int(cells.sum())
    resamples = []
    for drawn in rng.multinomial(num_votes, cells / num_votes, size=rounds):
        won, lost, drew = drawn.reshape(3, -1)
        scores = np.zeros_like(tally.wins)
        scores[upper] = won + 0.5 * drew
        scores.T[upper] = lost + 0.5 * drew
        resamples.append(scores)
    return resamples


def _refit(scores: FloatArray, core: BoolArray) -> FloatArray:
    """Strengths of the core, centred. A resample may be separable where the data are not: groups are then placed."""
    groups = find_groups(scores)
    strengths = place_groups(scores, fit_groups(scores, groups), groups, GROUP_RIDGE)
    centred: FloatArray = strengths[core] - strengths[core].mean()
    return centred
