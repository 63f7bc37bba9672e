"""What a vote weighs: the inverse of the probability with which its pair was drawn, or the probability that its voter
does not vote by chance."""

from dataclasses import dataclass

import numpy as np

from ratings.bradley_terry import Fit, fit_groups, laplacian, logistic, sandwich
from ratings.graph import IntArray, find_groups
from ratings.outcomes import FloatArray
from ratings.style import VoteColumns, points_of

PAIR_FLOOR = 50  #: below this many votes a pair of unknown probability is not weighted up any further
#: Imagined voters: one who votes by chance, 19 who do not. The share of the former is fitted with the others.
CARELESS_PRIOR, HONEST_PRIOR = 1.0, 19.0

_LEAST = 1e-3  #: weight of a voter, so that models that votes made comparable stay comparable
_MAX_ROUNDS = 50
_SETTLED = 1e-4  #: largest change of a weight in the last round
_VOTERS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class PropensityDiagnostics:
    """`num_known` votes whose probability of being drawn is known, the smallest probability of a pair among them, and
    how many evenly weighted votes the weighted ones are worth (Kish: the sum of weights squared over that of their
    squares)."""

    num_known: int
    smallest: float | None
    effective_votes: float | None


def propensity_weights(votes: VoteColumns, *, pair_floor: int = PAIR_FLOOR) -> FloatArray:
    """Weight of each vote: 1 / probability of its pair, so that every pair counts as if pairs were drawn evenly.

    Where the probability is unknown, the pair's share of such votes stands for it, as in published boards:
    1 / max(n, pair_floor). Both kinds have the mean weight 1. The Bradley-Terry model needs no weights if it is true;
    where it is not, weights make the ratings those of an even mixture of opponents.
    """
    known = np.isfinite(votes.probability) & (votes.probability > 0)
    size = len(votes.models)
    low, high = np.minimum(votes.model_a, votes.model_b), np.maximum(votes.model_a, votes.model_b)
    pair = low * size + high
    frequency = np.bincount(pair[~known], votes.weight[~known], size**2)
    inverse = np.empty(len(pair))
    inverse[known] = 1.0 / votes.probability[known]
    inverse[~known] = 1.0 / np.maximum(frequency[pair[~known]], pair_floor)
    for kind in (known, ~known):
        if kind.any():
            inverse[kind] /= np.average(inverse[kind], weights=votes.weight[kind])
    return inverse


def diagnose_propensity(votes: VoteColumns, weights: FloatArray) -> PropensityDiagnostics:
    """What weighting by `weights` [vote] costs."""
    known = np.isfinite(votes.probability) & (votes.probability > 0)
    total = float(votes.weight @ weights)
    return PropensityDiagnostics(
        num_known=int(votes.weight[known].sum()),
        smallest=float(votes.probability[known].min()) if known.any() else None,
        effective_votes=total**2 / float(votes.weight @ weights**2) if total > 0 else None,
    )


def voter_weights(votes: VoteColumns) -> FloatArray:
    """Weight of each vote: the probability that its voter does not vote by chance, for all votes of a voter the same.

    A mixture of two kinds of voters (as in Dawid and Skene, 1979, and am-ELO, arXiv 2505.03475) is fitted by
    expectation maximisation: those whose decisive votes follow the strengths, and those who toss a coin. A voter who
    votes against the strengths fits the coin better, too. Ties say nothing about a voter; a vote of an unknown voter
    weighs one. One voter's votes are judged by strengths to which they have contributed, so that a voter with most of
    all votes is not found; a test of single voters has to take the others' votes.
    """
    tally = votes.counts().tally(votes.models)
    groups = find_groups(tally.scores)
    core, weights = groups.core, np.ones(len(votes.voter))
    judged = (votes.voter >= 0) & (votes.score != 0.5) & core[votes.model_a] & core[votes.model_b]
    if not judged.any():
        return weights
    known = votes.voter >= 0
    voters, voter = np.unique(votes.voter[known], return_inverse=True)
    of_judged, judged_weight = voter[judged[known]], votes.weight[judged]
    is_judged = np.bincount(of_judged, minlength=len(voters)) > 0
    a_won, first, second = votes.score[judged] == 1.0, votes.model_a[judged], votes.model_b[judged]
    winner, loser = np.where(a_won, first, second), np.where(a_won, second, first)
    careless = CARELESS_PRIOR / (CARELESS_PRIOR + HONEST_PRIOR)
    for _ in range(_MAX_ROUNDS):
        strengths = fit_groups(points_of(votes, votes.weight * weights), groups)
        # The log odds of the coin: log(1/2) - log P(vote), summed over the voter's votes.
        surprise = np.log(0.5) + np.logaddexp(0.0, strengths[loser] - strengths[winner])
        odds = np.log(careless / (1.0 - careless)) + np.bincount(of_judged, judged_weight * surprise, len(voters))
        honest = np.maximum(1.0 - logistic(odds), _LEAST)
        num_careless = CARELESS_PRIOR + (1.0 - honest[is_judged]).sum()
        careless = num_careless / (CARELESS_PRIOR + HONEST_PRIOR + is_judged.sum())
        moved = np.abs(honest[voter] - weights[known]).max()
        weights[known] = honest[voter]
        if moved < _SETTLED:
            break
    return weights


def voter_covariance(votes: VoteColumns, weights: FloatArray, fit: Fit) -> FloatArray:
    """Sandwich covariance of the core's strengths in a fit with `voter_weights`, NaN elsewhere.

    The weights are estimates, too: of a voter with weight w and summed score u the curvature lacks w (1 - w) u u^T
    (Louis, 1982), and what scatters is w u, not single votes. Where so much is lacking that the curvature would not be
    positive, it is left whole.
    """
    core = fit.groups.core
    covariance = np.full((len(core), len(core)), np.nan)
    if not core.any():
        return covariance
    inside = core[votes.model_a] & core[votes.model_b]
    size, place = int(core.sum()), np.cumsum(core) - 1
    a, b = place[votes.model_a[inside]], place[votes.model_b[inside]]
    voter = votes.voter[inside]
    weight, repeats, score = (column[inside] for column in (weights, votes.weight, votes.score))
    chance = logistic(fit.strengths[core][a] - fit.strengths[core][b])
    curvature = _by_pair(a, b, weight * repeats * chance * (1.0 - chance), size)
    alone = voter < 0
    scatter = _by_pair(a[alone], b[alone], repeats[alone] * (score - chance)[alone] ** 2, size)
    missing = np.zeros_like(scatter)
    order = np.argsort(voter[~alone], kind="stable")
    a, b, voter = (column[~alone][order] for column in (a, b, voter))
    weight, repeats, score, chance = (column[~alone][order] for column in (weight, repeats, score, chance))
    number = np.cumsum(np.diff(voter, prepend=voter[:1]) != 0)
    for start in range(0, int(number.max(initial=-1)) + 1, _VOTERS_AT_ONCE):
        here = slice(*np.searchsorted(number, (start, start + _VOTERS_AT_ONCE)))
        row = number[here] - start
        count, residual = int(row.max()) + 1, repeats[here] * (score - chance)[here]
        scores = _by_voter(row, a[here], b[here], residual, count, size)
        judged = _by_voter(row, a[here], b[here], np.where(score[here] == 0.5, 0.0, residual), count, size)
        of_voter = np.zeros(count)
        of_voter[row] = weight[here]
        lacking = scores.T @ ((of_voter * (1.0 - of_voter))[:, None] * judged)
        scatter += scores.T @ (of_voter[:, None] ** 2 * scores)
        missing += 0.5 * (lacking + lacking.T)
    lifted = np.full((size, size), np.trace(curvature) / size**2)
    if np.linalg.eigvalsh(curvature - missing + lifted).min() > 0.0:
        curvature = curvature - missing
    covariance[np.ix_(core, core)], _ = sandwich(curvature, scatter, size)
    return covariance


def _by_pair(a: IntArray, b: IntArray, per_vote: FloatArray, size: int) -> FloatArray:
    pairs = np.bincount(a * size + b, per_vote, size**2).reshape(size, size).astype(np.float64)
    return laplacian(pairs + pairs.T)


def _by_voter(row: IntArray, a: IntArray, b: IntArray, residual: FloatArray, count: int, size: int) -> FloatArray:
    """Summed scores [voter, model]."""
    for_a, for_b = (np.bincount(row * size + side, residual, count * size) for side in (a, b))
    scores: FloatArray = (for_a - for_b).reshape(count, size).astype(np.float64)
    return scores
