"""A step plan in the making: the scheduler decides what goes in, here it becomes what the runner reads.

Knows how a sequence's share of a step is written down; decides nothing.
"""

from collections.abc import Iterable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass, field

from engine.batch import PENDING_TOKEN, PageCopy, PageMove, PageTableUpdate, ScheduledSequence, StepPlan
from engine.memory.growth import Extension
from engine.request import Request, Sequence


@dataclass(slots=True)
class StepPlanBuilder:
    """Requests in it cannot be preempted any more in this step."""

    budget: int  #: tokens that may still be added
    type_names: ReadOnly[str]  #: of the pool's layer types
    scheduled: set[Request] = field(default_factory=set)
    is_short: bool = False  #: somebody found no room and waits for what the steps in flight will leave
    _updates: list[PageTableUpdate] = field(default_factory=list)
    _swap_outs: list[PageMove] = field(default_factory=list)
    _swap_ins: list[PageMove] = field(default_factory=list)
    _copies: list[PageCopy] = field(default_factory=list)
    _single: list[ScheduledSequence] = field(default_factory=list)  # one token each: decodes
    _chunks: list[ScheduledSequence] = field(default_factory=list)

    def send_table(self, sequence: Sequence, tables: Iterable[tuple[int, ...]]) -> None:
        """The runner gets the sequence's whole page tables, because it has just got its slot."""
        assert sequence.slot is not None
        for name, pages in zip(self.type_names, tables, strict=True):
            self._updates.append(PageTableUpdate(sequence.slot, name, 0, pages))
        sequence.is_table_sent = True

    def send_changes(self, sequence: Sequence, extension: Extension) -> None:
        assert sequence.slot is not None
        for change in extension.changes:
            name = self.type_names[change.layer_type]
            self._updates.append(PageTableUpdate(sequence.slot, name, change.start, change.pages))

    def copy(self, extension: Extension) -> None:
        for copy in extension.copies:
            self._copies.append(PageCopy(self.type_names[copy.layer_type], copy.src, copy.dst))

    def swap_out(self, moves: list[PageMove]) -> None:
        self._swap_outs += moves

    def swap_in(self, moves: list[PageMove]) -> None:
        self._swap_ins += moves

    def add(self, request: Request, sequence: Sequence, end: int, samplers: ReadOnly[Sequence]) -> None:
        """Compute the sequence's tokens up to `end`, and draw one for each of these behind the last.

        From here on they count as computed and as pending: a step that was planned happens.
        """
        assert sequence.slot is not None
        start = sequence.num_computed
        token_ids = tuple(sequence.token_ids[start:end])
        if len(token_ids) < end - start:
            token_ids += (PENDING_TOKEN,)
        history = None
        if samplers and request.needs_history:
            if not sequence.is_history_sent:
                assert not sequence.num_pending, "whoever draws for the first time waits for nothing"
                history = tuple(sequence.token_ids)
            sequence.is_history_sent = len(samplers) == 1
        scheduled = ScheduledSequence(
            sequence_id=sequence.sequence_id,
            slot=sequence.slot,
            token_ids=token_ids,
            start=start,
            num_samples=len(samplers),
            params=request.params,
            seeds=tuple([sampler.seed for sampler in samplers]),
            output_index=sequence.num_output_tokens + sequence.num_pending,
            history=history,
        )
        (self._single if end - start == 1 else self._chunks).append(scheduled)
        self.budget -= end - start
        sequence.num_computed = end
        for sampler in samplers:
            sampler.num_pending += 1

    def finish(self, step: int) -> StepPlan:
        return StepPlan(
            step=step,
            page_table_updates=tuple(self._updates),
            copies=tuple(self._copies),
            sequences=tuple(self._single + self._chunks),
            swap_outs=tuple(self._swap_outs),
            swap_ins=tuple(self._swap_ins),
        )
