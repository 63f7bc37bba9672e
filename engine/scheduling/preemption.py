"""How a preempted request's pages leave the pool and come back: through the mirror, or by computing its tokens again.

The scheduler decides which request is preempted, and when it resumes.
"""

from collections.abc import Iterable

from engine.batch import StepOutput, StepPlan
from engine.memory.kv_cache import KVCache
from engine.request import Request
from engine.scheduling.beams import Beams
from engine.scheduling.step_plan_builder import StepPlanBuilder
from engine.scheduling.swapper import Swapper


class Preemption:
    """Owner of the choice between swapping and recomputing. Without a swapper every preempted request is recomputed;
    with one, a request is recomputed where swapping costs more or the mirror has no room."""

    def __init__(self, cache: KVCache, beams: Beams, swapper: Swapper | None) -> None:
        self._cache = cache
        self._beams = beams
        self._swapper = swapper

    def note_new_pool(self, swapper: Swapper | None) -> None:
        """The page cache uses another pool from now on, and `swapper` another mirror."""
        self._swapper = swapper

    def note_costs(self, plan: StepPlan, output: StepOutput) -> None:
        """Learn from a collected step what computing and moving cost."""
        if self._swapper is not None:
            self._swapper.note_costs(plan, output)

    def take_pages(self, builder: StepPlanBuilder, request: Request) -> None:
        """Take all pages of a running request away: they are swapped out, or recomputed when it resumes."""
        has_reports = self._beams.has_reports(request)
        moves = None if self._swapper is None or has_reports else self._swapper.swap_out(request)
        if moves is not None:
            builder.swap_out(moves)
        else:
            self._forget_computed(request)

    def is_swapped(self, request: Request) -> bool:
        """Whether the request's pages are in the mirror."""
        return self._swapper is not None and self._swapper.has(request)

    def swap_in(self, builder: StepPlanBuilder, request: Request, lengths: list[int], num_spare_pages: int) -> bool:
        """Bring the pages of a swapped request back. False, with nothing changed, where its sequences have no room to
        grow to these lengths (in tokens) and leave `num_spare_pages` free."""
        assert self._swapper is not None
        moves = self._swapper.swap_in(request, lengths, num_spare_pages)
        if moves is None:
            return False
        builder.swap_in(moves)
        return True

    def drop(self, request: Request) -> None:
        """The request has ended: free its pages of the mirror, if it has any."""
        if self._swapper is not None and self._swapper.has(request):
            self._swapper.drop(request)

    def give_up_mirror(self, requests: Iterable[Request]) -> None:
        """The mirror goes: all requests, and those to come, are recomputed until `note_new_pool`."""
        swapper, self._swapper = self._swapper, None
        for request in requests if swapper is not None else ():
            if swapper is not None and swapper.has(request):
                swapper.drop(request)
                self._forget_computed(request)

    def _forget_computed(self, request: Request) -> None:
        """Free all pages of a request, which is computed again from its tokens."""
        for sequence in request.unfinished:
            self._cache.free(sequence.sequence_id)
            sequence.num_computed = 0
        self._beams.forget_reports(request)
        request.is_forked = False
