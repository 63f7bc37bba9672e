"""How many of a sequence's tokens a step computes: up to its target, as far as budget and pages go.

The scheduler decides in which order sequences get their tokens, and what happens where pages are missing.
"""

from engine.memory.growth import NOTHING_CHANGED
from engine.memory.kv_cache import KVCache
from engine.request import Request, Sequence
from engine.scheduling.budgeted_chunks import budgeted_chunk_end
from engine.scheduling.step_plan_builder import StepPlanBuilder


def active_sequences(request: Request) -> list[Sequence]:
    """The sequences that compute tokens now; before the fork only the leader, for all samples."""
    if len(request.sequences) == 1:
        return request.sequences
    unfinished = request.unfinished
    return unfinished if request.is_forked else unfinished[:1]


def target_length(request: Request, sequence: Sequence) -> int:
    """The number of the sequence's tokens that can be computed by now: before the fork, the prompt; later, all tokens
    and the pending one, if the sequence can continue from it."""
    if not request.is_forked and len(request.sequences) > 1:
        return request.num_prompt_tokens
    if sequence.num_pending and request.can_continue_pending(sequence):
        return len(sequence.token_ids) + sequence.num_pending
    return len(sequence.token_ids)


class ChunkPlanner:
    """Allocates the pages of a chunk and adds it to the step's plan. Owns nothing but what it reads of the pool."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self.note_new_pool()

    def note_new_pool(self) -> None:
        """The page cache uses another pool from now on."""
        self._type_names = [layer_type.name for layer_type in self._cache.plan.types]
        self._smallest_budget = self._cache.plan.smallest_budget

    @property
    def needs_whole_prompts(self) -> bool:
        """Whether a prompt must be computed in one step: layers keep a budget of its pages."""
        return self._smallest_budget is not None

    def begin_plan(self, budget: int) -> StepPlanBuilder:
        """An empty plan of a step of at most `budget` tokens."""
        return StepPlanBuilder(budget, self._type_names)

    def plan_chunk(
        self,
        builder: StepPlanBuilder,
        request: Request,
        sequence: Sequence,
        target: int,
        drafts: tuple[int, ...] = (),
    ) -> bool:
        """Plan as many of the sequence's tokens up to `target` as the budget allows, with proposed ones after the last;
        false where pages are missing."""
        start = sequence.num_computed
        if self._smallest_budget is None:
            end = self._cache.chunk_end(start, min(target, start + builder.budget))
        else:
            end = budgeted_chunk_end(start, target, request.num_prompt_tokens, self._smallest_budget, builder.budget)
        extension = self._cache.extend(sequence.sequence_id, start, end + len(drafts))
        if extension is None:
            return False
        if not sequence.is_table_sent:
            builder.send_table(sequence, self._cache.page_table(sequence.sequence_id))
        elif extension is not NOTHING_CHANGED:
            builder.send_changes(sequence, extension)
        if extension is not NOTHING_CHANGED:
            builder.copy_pages(extension)
        builder.add_sequence(request, sequence, end, _samplers(request, sequence) if end == target else (), drafts)
        return True

    def plan_first_chunks(self, builder: StepPlanBuilder, request: Request) -> None:
        """Plan the first chunk of a request that has its slots and pages."""
        leader, *others = active_sequences(request)
        has_pages = self.plan_chunk(builder, request, leader, target_length(request, leader))
        assert has_pages, "it was admitted with room for more"
        builder.scheduled.add(request)
        for sequence in others:  # samples that come back from the mirror
            if builder.budget:
                self.plan_chunk(builder, request, sequence, target_length(request, sequence))


def _samplers(request: Request, sequence: Sequence) -> list[Sequence]:
    """The sequences that get a token when this one reaches its target: itself; or all samples, when their prompt is
    complete; or none, when a preempted request recomputes its prompt and every sample has tokens already, or when the
    request wants no output. A prompt's beams begin with the same report."""
    if not request.params.max_tokens:
        return []
    if request.is_forked or len(request.sequences) == 1:
        return [sequence]
    if sequence.num_output_tokens:
        return []
    return request.sequences if request.params.beam is None else [sequence]
