"""Which models can be compared: groups of models in the graph of comparisons.

An edge i -> j means that i took at least half a point from j. Bradley-Terry strengths of two models have a finite
maximum-likelihood gap exactly when edges lead both ways between them (Ford 1957), that is when they are in one group.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratings.outcomes import FloatArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """`strong[i]` numbers the strongly connected group of model i, `islands[i]` its weakly connected
    part of the graph.

    `core` marks the group that holds most votes. It is empty when no group has an inner vote or two hold equally many:
    then there is no reference to measure the other models against.
    """

    strong: IntArray
    islands: IntArray
    core: BoolArray


def find_groups(scores: FloatArray) -> Groups:
    """Groups of a score matrix, `scores[i, j]` being the points of i against j."""
    edges = scores > 0
    reach = _reachable(edges)
    strong = _number(reach & reach.T)
    islands = _number(_reachable(edges | edges.T))
    return Groups(strong, islands, _core(scores, strong))


def membership(labels: IntArray) -> FloatArray:
    """Matrix with a row per model and a column per group, one where the model belongs to the group."""
    member: FloatArray = (labels[:, None] == np.arange(labels.max(initial=-1) + 1)).astype(np.float64)
    return member


def _reachable(edges: BoolArray) -> BoolArray:
    reach = edges | np.eye(len(edges), dtype=bool)
    while True:
        # Squaring doubles the path length; float32 goes through BLAS and is exact as a test for zero.
        steps = reach.astype(np.float32)
        wider: BoolArray = (steps @ steps) > 0
        if np.array_equal(wider, reach):
            return reach
        reach = wider


def _number(together: BoolArray) -> IntArray:
    if not len(together):
        return np.zeros(0, dtype=np.int64)
    return np.unique(together.argmax(axis=1), return_inverse=True)[1].astype(np.int64)


def _core(scores: FloatArray, strong: IntArray) -> BoolArray:
    member = membership(strong)
    inner_votes = np.einsum("ig,ij,jg->g", member, scores, member)
    largest = inner_votes.max(initial=0.0)
    leaders = np.flatnonzero(inner_votes == largest)
    if largest == 0 or len(leaders) != 1:
        return np.zeros(len(strong), dtype=bool)
    core: BoolArray = strong == leaders[0]
    return core
