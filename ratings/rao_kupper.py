"""The Rao-Kupper model: a tie is an outcome with a probability of its own instead of half a win.

P(i beats j) = 1 / (1 + exp(w - s_i + s_j)), P(j beats i) likewise, and the rest is a tie; w >= 0 is the width of ties
(Rao and Kupper, 1967, with theta = exp(w)). Without ties w = 0, and the model is that of Bradley and Terry.

The scale is another one than that of half wins. Where votes follow this model, half wins shrink the gaps: the expected
points of a model that is s ahead are the mean of logistic(s - w) and logistic(s + w), which grows more slowly with s
than logistic(s) does. A model that is w ahead wins half of its votes.
"""

from ratings.bradley_terry import GROUP_RIDGE, Fit, fit_groups, place_groups
from ratings.graph import find_groups
from ratings.joint import fit_jointly
from ratings.outcomes import PairCounts, Tally
from ratings.style import cells_of


def fit_rao_kupper(counts: PairCounts | Tally, *, group_ridge: float = GROUP_RIDGE) -> Fit:
    """Fit all models of `counts`. Models outside the core are placed by half wins, as in the Bradley-Terry fit. Raises
    ConvergenceError."""
    tally = counts if isinstance(counts, Tally) else counts.tally()
    groups = find_groups(tally.scores)
    estimate = fit_jointly(cells_of(tally), fit_groups(tally.scores, groups), groups.core, with_ties=True)
    strengths = place_groups(tally.scores, estimate.strengths, groups, group_ridge)
    size = len(strengths)
    return Fit(tally.models, strengths, estimate.covariance[:size, :size], groups, tally, estimate.tie_width)
