"""Whether pages can be allocated beside all used ones, and the claims of large pages that guarantee it.

Knows the pools of all types of a model, but no sequences. Other models may use the same large pages.
"""

from collections.abc import Sequence

from engine.memory.admission import AdmissionRule, Needs
from engine.memory.lockstep import LockstepGroup
from engine.memory.pool_share import PoolShare
from engine.memory.small_pool import RequestKey


class Room:
    """Free room in the pools of all groups, counted in large pages."""

    def __init__(self, rule: AdmissionRule, share: PoolShare, groups: Sequence[LockstepGroup]) -> None:
        self._rule = rule
        self._large_pool = share.large_pool
        self._max_large_pages = share.max_large_pages
        self._groups = groups

    @property
    def num_used_large_pages(self) -> int:
        """Large pages in which this model uses a small page."""
        return sum([group.pool.num_used_rows * group.pool.width for group in self._groups])

    def num_missing(self, needs: Needs, num_spare_pages: int = 0) -> int:
        """Large pages that are missing for these small pages; 0: they can be allocated. Arguments: as `has`."""
        wanted = [need + num_spare_pages for need in needs]
        reusable = [group.pool.num_reusable_beside_used for group in self._groups]
        available = self._within_ceiling(self._large_pool.num_available)
        return max(0, self._rule.large_pages(wanted, reusable) - available)

    def has(self, needs: Needs, num_spare_pages: int = 0) -> bool:
        """Whether that many small pages of each group, and num_spare_pages more of each, can be allocated. Cached pages
        count as room, because they are evicted on demand."""
        return self.num_missing(needs, num_spare_pages) == 0

    def prepare(self, request: RequestKey, needs: Sequence[int]) -> bool | None:
        """Guarantee that these pages can be allocated one after another. Returns SmallPool.allocate's may_take_large;
        None where there is no room.

        With plenty of large pages the plain order of allocation cannot fail. Otherwise one type could take the large
        page that another type needs, although it has small pages to reuse. So each type first claims the fewest large
        pages that are enough for it, and takes no more (the artifact of Jenga sets a quota for the same reason).
        """
        num_at_hand = self._within_ceiling(self._large_pool.num_empty + self._large_pool.num_evictable)
        if sum([need * group.pool.width for need, group in zip(needs, self._groups, strict=True)]) <= num_at_hand:
            return True
        if self._max_large_pages is None:
            associated = [group.pool.num_associated_empty(request) for group in self._groups]
            if self._rule.large_pages(needs, associated) <= num_at_hand:
                return True
        if not self.has(tuple(needs)):
            return None
        if self._max_large_pages is not None:
            # An empty or cached small page in an idle row is no room below a ceiling: the row would count as used.
            for group in self._groups:
                self._large_pool.reclaim_idle(group.pool)
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
        """Allocate one of the pages that `prepare` has guaranteed. may_take_large: what `prepare` returned."""
        page = group.pool.allocate(request, may_take_large=may_take_large)
        assert page is not None, "there was room"
        return page

    def give_back_unused(self, request: RequestKey) -> None:
        """Return claimed large pages that the allocations did not need; called after them if `prepare` claimed any."""
        for group in self._groups:
            group.pool.give_back_unused(request)

    def _within_ceiling(self, num_large_pages: int) -> int:
        """How many of so many large pages the model may use beside those that it uses already."""
        if self._max_large_pages is None:
            return num_large_pages
        return min(num_large_pages, self._max_large_pages - self.num_used_large_pages)
