"""Whether pages can be had beside everything that is used now, and the claims that make sure of it.

Knows the pools of all types; what pages are for is the facade's affair.
"""

from collections.abc import Sequence

from engine.memory.admission import AdmissionRule, Needs
from engine.memory.large_pool import LargePool
from engine.memory.lockstep import LockstepGroup
from engine.memory.small_pool import RequestKey


class Room:
    def __init__(self, rule: AdmissionRule, large_pool: LargePool, groups: Sequence[LockstepGroup]) -> None:
        self._rule = rule
        self._large_pool = large_pool
        self._groups = groups

    def has(self, needs: Needs, num_spare_pages: int = 0) -> bool:
        """Whether so many small pages of each type can be had, and num_spare_pages more of each. Cached pages count as
        room: they are evicted on demand."""
        wanted = [need + num_spare_pages for need in needs]
        reusable = [group.pool.num_reusable_beside_used for group in self._groups]
        return self._rule.large_pages(wanted, reusable) <= self._large_pool.num_available

    def prepare(self, request: RequestKey, needs: Sequence[int]) -> bool | None:
        """Make sure that these pages can be allocated one after another: the answer is SmallPool.allocate's argument.

        With plenty of large pages the plain order of allocation cannot fail. Otherwise one type could take the large
        page that another type needs while it has small ones to reuse; so each type first claims the fewest large
        pages it can do with (the artifact of Jenga sets a quota for the same reason), and takes no more. None: there
        is no room.
        """
        num_at_hand = self._large_pool.num_empty + self._large_pool.num_evictable
        if sum([need * group.pool.width for need, group in zip(needs, self._groups, strict=True)]) <= num_at_hand:
            return True
        own = [group.pool.num_associated_empty(request) for group in self._groups]
        if self._rule.large_pages(needs, own) <= num_at_hand:
            return True
        if not self.has(tuple(needs)):
            return None
        claims = [
            -(-max(0, need - group.pool.num_reusable_beside_used) // group.pool.ratio)
            for need, group in zip(needs, self._groups, strict=True)
        ]
        for group, num_claims in zip(self._groups, claims, strict=True):
            for _ in range(num_claims):
                has_claimed = group.pool.claim_large(request)
                assert has_claimed, "there was room"
        return False

    def take(self, request: RequestKey, group: LockstepGroup, may_take_large: bool) -> int:
        """One of the pages for which `prepare` has made sure, and its answer."""
        page = group.pool.allocate(request, may_take_large=may_take_large)
        assert page is not None, "there was room"
        return page

    def give_back_unused(self, request: RequestKey) -> None:
        """After the allocations for which `prepare` has claimed large pages."""
        for group in self._groups:
            group.pool.give_back_unused(request)
