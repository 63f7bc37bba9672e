"""How few votes decide a place: the number of one-sided votes after which the next model would overtake."""

import math

import numpy as np

from ratings.bradley_terry import Fit, expected_scores, maximize


def votes_to_overtake(fit: Fit, leader: str, follower: str) -> int:
    """The smallest number of further votes, all won by `follower` against `leader`, that lifts it above.

    Exact, without a search. Hold both models at one strength and fit the rest: the pull mu on the leader is the score
    that the constraint balances. Each new vote, at equal strengths, balances one half of it, so 2 mu votes make the
    gap zero. Both models must be in the core of an unweighted fit, and the leader must not stand below the follower.
    """
    first, second = fit.models.index(leader), fit.models.index(follower)
    core = fit.groups.core
    assert core[first]
    assert core[second]
    assert fit.strengths[first] >= fit.strengths[second] - 1e-6
    names = np.flatnonzero(core)
    lead, follow = (int(np.searchsorted(names, index)) for index in (first, second))
    points = fit.tally.scores[np.ix_(core, core)]
    base = fit.strengths[core]
    base[[lead, follow]] = 0.5 * (base[lead] + base[follow])
    basis = np.delete(np.eye(len(base)), follow, axis=1)
    basis[follow] = basis[lead]
    merged = base + basis @ maximize(points, base, basis, gauge=np.ones((basis.shape[1], basis.shape[1])))
    pull = float((points - (points + points.T) * expected_scores(merged))[lead].sum())
    return max(0, math.floor(2.0 * pull + 1e-6)) + 1
