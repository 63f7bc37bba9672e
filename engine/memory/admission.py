"""The one rule that says whether sequences fit into a page pool: at start-up, in the scheduler and before an API error.

Counts large pages, not bytes: evictable small pages inside a large page that another type uses do not help. A pure
function of the plan; immutable, so any thread may call it.
"""

from collections.abc import Sequence

from engine.memory.images import Images
from engine.memory.policies import policy_for
from engine.memory.spec import PoolPlan

#: Small pages of each lockstep group of types, in the order of PoolPlan.lockstep_groups.
Needs = tuple[int, ...]


class AdmissionRule:
    """Counts the pages of sequences by their lengths, with the policy of each layer type."""

    def __init__(self, plan: PoolPlan, max_step_tokens: int | None = None, max_large_pages: int | None = None) -> None:
        """max_large_pages: the most that the model may use of a pool that others share; None: all."""
        self._num_large_pages = plan.num_usable_large_pages
        if max_large_pages is not None:
            self._num_large_pages = min(self._num_large_pages, max_large_pages)
        groups = plan.lockstep_groups()
        types = [plan.types[group[0]] for group in groups]
        self._policies = [policy_for(layer_type, max_step_tokens) for layer_type in types]
        self._ratios = [plan.ratio(layer_type) for layer_type in types]
        self._widths = [len(group) for group in groups]

    def needs(self, lengths: Sequence[int], num_shared_tokens: int = 0, images: Images = ()) -> Needs:
        """The most pages that sequences of these lengths hold together when all share their first num_shared_tokens."""
        num_sharers = len(lengths) - 1
        return tuple(
            sum([policy.num_pages(length, images) for length in lengths])
            - num_sharers * policy.num_lasting_pages(num_shared_tokens, images)
            for policy in self._policies
        )

    def large_pages(self, needs: Sequence[int], reusable: Sequence[int] | None = None) -> int:
        """Large pages that these needs take beyond the `reusable` small pages of each group."""
        total = 0
        for which, (need, ratio, width) in enumerate(zip(needs, self._ratios, self._widths, strict=True)):
            short = need - (reusable[which] if reusable is not None else 0)
            if short > 0:
                total += width * -(-short // ratio)
        return total

    def fits_ever(self, lengths: Sequence[int], num_shared_tokens: int = 0, images: Images = ()) -> bool:
        """Whether these sequences fit into an otherwise empty pool. If not, they must be refused, not queued."""
        return self.large_pages(self.needs(lengths, num_shared_tokens, images)) <= self._num_large_pages

    def max_tokens(self, limit: int, images: Images = ()) -> int:
        """Length in tokens of the longest single sequence, up to `limit`, that ever fits."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits_ever([middle], 0, images):
                low = middle
            else:
                high = middle - 1
        return low

    def max_sequences(self, num_tokens: int, images: Images = ()) -> int:
        """How many unrelated sequences of that length, each with its own images, fit at once."""
        needs = self.needs([num_tokens], 0, images)
        low, high = 0, self._num_large_pages * max(self._ratios)
        while low < high:
            middle = (low + high + 1) // 2
            if self.large_pages([middle * need for need in needs]) <= self._num_large_pages:
                low = middle
            else:
                high = middle - 1
        return low
