"""Whether a waiting request has room now: slots of the runner, and pages for all its tokens so far.

Its pages come back from the mirror, or are allocated beside those that the prefix cache has of its prompt. The
scheduler decides which request is asked for next.
"""

from collections.abc import Sequence as ReadOnly
from typing import Protocol

from engine.memory.kv_cache import KVCache
from engine.request import Request, Sequence
from engine.scheduling.chunks import target_length
from engine.scheduling.preemption import Preemption
from engine.scheduling.slots import Slots
from engine.scheduling.step_plan_builder import StepPlanBuilder


class Reclaim(Protocol):
    """Takes used pages from other models that share the pool."""

    def __call__(self, num_missing: int, num_wanted: int) -> bool:
        """Try to make so many more large pages available, for a request that takes num_wanted in all. False: the model
        is not entitled to them, or not yet; nothing may have changed."""
        ...


class Placement:
    """Gives waiting requests their slots and pages. Owns nothing itself."""

    def __init__(self, cache: KVCache, slots: Slots, preemption: Preemption, reclaim: Reclaim | None) -> None:
        """reclaim: None: no other model shares the pool."""
        self._cache = cache
        self._slots = slots
        self._preemption = preemption
        self._reclaim = reclaim

    def place(self, builder: StepPlanBuilder, request: Request, *, is_alone: bool) -> bool:
        """Take slots for a waiting request that `has_slots`, and its pages from the mirror or for its cached prefix.
        False, with nothing taken, where not all its tokens so far fit.

        is_alone: no request runs and no step is in flight, so no page is used.
        """
        sequences = request.unfinished
        # One page per running sequence stays free: an admission that preemption would soon undo is no gain.
        num_spare = self._slots.num_taken
        lengths = _next_lengths(request, sequences)
        if self._preemption.is_swapped(request):
            has_room = self._preemption.swap_in(builder, request, lengths, num_spare)
        else:
            has_room = self._allocate(request, sequences[0], lengths, num_spare, is_alone=is_alone)
        if has_room:
            self._slots.take(sequences)
        return has_room

    def has_slots(self, request: Request) -> bool:
        """Whether every sequence of the request could have a slot now."""
        return len(request.unfinished) <= self._slots.num_free

    def reclaim_for(self, request: Request) -> bool:
        """Ask other models for the pages that a waiting request lacks; whether another attempt may succeed."""
        if self._reclaim is None or not self.has_slots(request):
            return False
        lengths = _next_lengths(request, request.unfinished)
        num_missing = self._cache.num_missing(lengths, request.num_prompt_tokens, num_spare_pages=self._slots.num_taken)
        num_wanted = self._cache.rule.large_pages(self._cache.rule.needs(lengths, request.num_prompt_tokens))
        return num_missing > 0 and self._reclaim(num_missing, num_wanted)

    def _allocate(
        self, request: Request, leader: Sequence, lengths: list[int], num_spare: int, *, is_alone: bool
    ) -> bool:
        """Pages for the cached prefix of a request that is computed, and room for the rest."""
        # Rows that are still to be read must be computed. Pages of such a prompt are cached for others all the same.
        most = target_length(request, leader) - 1
        if request.reading is not None:
            most = min(most, request.reading.next_row)
        # A request that is alone and has no room: cached pages are scattered over many large pages. It fits without.
        for max_hit in (most, 0) if is_alone else (most,):
            num_hit = self._cache.admit(
                leader.sequence_id,
                leader.token_ids,
                max_hit,
                lengths,
                request.num_prompt_tokens,
                num_spare_pages=num_spare,
            )
            if num_hit is not None:
                leader.num_computed = num_hit
                return True
        return False


def _next_lengths(request: Request, sequences: ReadOnly[Sequence]) -> list[int]:
    """Tokens of each sequence after its next one, if it gets any."""
    return [len(sequence.token_ids) + min(1, request.params.max_tokens) for sequence in sequences]
