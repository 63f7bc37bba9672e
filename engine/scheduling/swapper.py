"""Moves pages of preempted requests to the mirror and back, where that is cheaper than recomputing them.

The scheduler decides which request is preempted and when it resumes, and calls this in its thread. The runner moves the
bytes.
"""

from collections.abc import Iterable

from engine.batch import PageMove, StepOutput, StepPlan
from engine.memory.kv_cache import KVCache
from engine.memory.spec import NUM_NULL_LARGE_PAGES
from engine.memory.swap import MirrorPool, Move
from engine.memory.swap_cost import CostMeter
from engine.request import Request

_NUM_TRIAL_PAGES = 64


class Swapper:
    """Owner of the mirror's books and of the measured costs of moves and steps."""

    def __init__(self, cache: KVCache, mirror: MirrorPool) -> None:
        self.mirror = mirror
        self.num_swap_outs = 0
        self.swapped_bytes = 0  #: out and in together
        self._cache = cache
        self._costs = CostMeter()
        self._type_names = [layer_type.name for layer_type in cache.plan.types]
        self._page_bytes = {layer_type.name: layer_type.small_page_bytes for layer_type in cache.plan.types}

    def has(self, request: Request) -> bool:
        """Whether the request's pages are in the mirror."""
        return request.arrival in self.mirror

    def swap_out(self, request: Request) -> list[PageMove] | None:
        """Moves of all pages of a running request to the mirror. None, with nothing changed, where the mirror has no
        room or recomputing costs less by the costs measured so far.

        The prefix cache may still hold some of these pages when the request resumes; how many is not known and not
        counted.
        """
        cost = self._costs.cost()
        if cost is None:
            return None
        sequences = request.unfinished
        for sequence in sequences:
            self._cache.trim(sequence.sequence_id)
        tables = [self._cache.page_table(sequence.sequence_id) for sequence in sequences]
        if not cost.is_swap_cheaper(*self.mirror.bytes_of(tables), _num_to_recompute(request)):
            return None
        moves = self.mirror.swap_out(request.arrival, tables)
        if moves is None:
            return None
        for sequence in sequences:
            self._cache.suspend(sequence.sequence_id)
        self.num_swap_outs += 1
        return self._for_runner(moves)

    def swap_in(self, request: Request, lengths: list[int], num_spare_pages: int) -> list[PageMove] | None:
        """Moves of all pages of a request back from the mirror. None, with nothing changed, where its sequences have no
        room to grow to these lengths (in tokens) and leave `num_spare_pages` free.

        A step swaps out before it swaps in, so host pages freed here are read before they are written again.
        """
        tables = self._cache.resume(
            [sequence.sequence_id for sequence in request.unfinished],
            self.mirror.tables(request.arrival),
            lengths,
            request.num_prompt_tokens,
            num_spare_pages=num_spare_pages,
        )
        return None if tables is None else self._for_runner(self.mirror.swap_in(request.arrival, tables))

    def drop(self, request: Request) -> None:
        """Free the mirror pages of a request that has ended."""
        self.mirror.drop(request.arrival)

    def note_costs(self, plan: StepPlan, output: StepOutput) -> None:
        """Learn from a collected step what computing and moving cost."""
        if plan.num_tokens:
            self._costs.note_step(plan.num_tokens, output.compute_s)
        if plan.swap_outs or plan.swap_ins:
            self._costs.note_moves(self._num_bytes(plan.swap_outs + plan.swap_ins), output.move_s)

    def plan_trial_moves(self, *, in_null_pages: bool = False) -> StepPlan:
        """A step that only moves a few pages out and in again, to measure the cost. Only for an engine before its first
        request, while no page holds data.

        in_null_pages: other models have data in the pool: only null pages are moved, which hold nothing.
        """
        kind = self._cache.plan.types[0]
        ratio = self._cache.plan.ratio(kind)
        num_large = min(self._cache.plan.num_usable_large_pages, self.mirror.plan.num_usable_large_pages)
        if in_null_pages:
            first, num_large = 0, NUM_NULL_LARGE_PAGES
        else:
            first = NUM_NULL_LARGE_PAGES * ratio
        pages = range(first, first + min(_NUM_TRIAL_PAGES, num_large * ratio))
        moves = tuple(PageMove(kind.name, page, page) for page in pages)
        return StepPlan(0, (), (), (), swap_outs=moves, swap_ins=moves)

    def _for_runner(self, moves: tuple[Move, ...]) -> list[PageMove]:
        named = [PageMove(self._type_names[move.layer_type], move.device_page, move.host_page) for move in moves]
        self.swapped_bytes += self._num_bytes(named)
        return named

    def _num_bytes(self, moves: Iterable[PageMove]) -> int:
        return sum(self._page_bytes[move.layer_type] for move in moves)


def _num_to_recompute(request: Request) -> int:
    """Tokens that the request would compute again; a token that its samples share counts once."""
    sequences = request.unfinished
    num_computed = sum(sequence.num_computed for sequence in sequences)
    return num_computed - (len(sequences) - 1) * request.num_prompt_tokens if request.is_forked else num_computed
