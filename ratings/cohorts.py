"""Groups of voters who vote alike and unlike everybody else: one rigger behind many identities.

Each identity alone has too few votes for a judgement; together they have enough. A group is an invitation's cohort, or
the voters of one network on one day. Knows no log and no names.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ratings.voters import SURPRISE_LIMIT, Ballots, Crowd, Surprise

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MIN_VOTERS = 3  #: a smaller group is left to the test of its voters


@dataclass(frozen=True)
class GroupVerdict:
    """The test of a group as if it were one voter. `weakest` is the least surprise that remains when one of its most
    active voters is left out, so that no single voter condemns a group."""

    num_voters: int
    pooled: Surprise
    weakest: float

    def is_anomalous(self, limit: float = SURPRISE_LIMIT) -> bool:
        """Whether the group passes the limit, also without any one voter."""
        return self.num_voters >= MIN_VOTERS and min(self.pooled.peak, self.weakest) > limit


def judge_group(
    crowd: Crowd,
    own: Ballots,
    voters: IntArray,
    *,
    is_inside: BoolArray | None = None,
    limit: float = SURPRISE_LIMIT,
    num_left_out: int = 5,
) -> GroupVerdict:
    """Test the votes `own` of a group; `voters[j]` cast vote j, and the crowd has it if `is_inside[j]` (by default it
    has all). Voters are left out only if all together pass `limit`."""
    names, counts = np.unique(voters, return_counts=True)
    inside = own if is_inside is None else own.taken(is_inside)
    pooled = crowd.surprise(own, inside=inside)
    weakest = pooled.peak
    if len(names) >= MIN_VOTERS and pooled.peak > limit:
        for voter in names[np.argsort(-counts, kind="stable")][:num_left_out]:
            weakest = min(weakest, crowd.surprise(own.taken(voters != voter), inside=inside).peak)
    return GroupVerdict(len(names), pooled, weakest)
