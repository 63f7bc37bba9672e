"""Builds a StepPlan: the scheduler decides what the step contains, the builder writes it as the runner reads it.

Decides nothing itself.
"""

from collections.abc import Iterable
from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass, field

from engine.batch import PENDING_TOKEN, PageCopy, PageMove, PageTableUpdate, ScheduledSequence, StepPlan
from engine.memory.growth import Extension
from engine.request import Request, Sequence


@dataclass(slots=True)
class StepPlanBuilder:
    """One step plan under construction. A request that is in it cannot be preempted in this step any more."""

    budget: int  #: tokens that may still be added
    type_names: ReadOnly[str]  #: the names of the pool's layer types
    scheduled: set[Request] = field(default_factory=set)  #: requests with tokens in this step
    is_short: bool = False  #: a request found no room and waits for the pages that steps in flight will free
    _updates: list[PageTableUpdate] = field(default_factory=list)
    _swap_outs: list[PageMove] = field(default_factory=list)
    _swap_ins: list[PageMove] = field(default_factory=list)
    _copies: list[PageCopy] = field(default_factory=list)
    _single: list[ScheduledSequence] = field(default_factory=list)  # one token each: decodes
    _chunks: list[ScheduledSequence] = field(default_factory=list)
    _has_adapters: bool = False

    def send_table(self, sequence: Sequence, tables: Iterable[tuple[int, ...]]) -> None:
        """Send the sequence's whole page tables, because its slot is new to the runner. tables: by layer type."""
        assert sequence.slot is not None
        for name, pages in zip(self.type_names, tables, strict=True):
            self._updates.append(PageTableUpdate(sequence.slot, name, 0, pages))
        sequence.is_table_sent = True

    def send_changes(self, sequence: Sequence, extension: Extension) -> None:
        """Send the entries that an extension has added to or changed in the sequence's page tables."""
        assert sequence.slot is not None
        for change in extension.changes:
            name = self.type_names[change.layer_type]
            self._updates.append(PageTableUpdate(sequence.slot, name, change.start, change.pages))

    def copy_pages(self, extension: Extension) -> None:
        """Copy shared pages that the sequence will write."""
        for copy in extension.copies:
            self._copies.append(PageCopy(self.type_names[copy.layer_type], copy.src, copy.dst))

    def swap_out(self, moves: list[PageMove]) -> None:
        """Move pages to the mirror before the step writes any."""
        self._swap_outs += moves

    def swap_in(self, moves: list[PageMove]) -> None:
        """Move pages back from the mirror, after all that go out."""
        self._swap_ins += moves

    def add_sequence(
        self,
        request: Request,
        sequence: Sequence,
        end: int,
        samplers: ReadOnly[Sequence],
        drafts: tuple[int, ...] = (),
    ) -> None:
        """Compute the sequence's tokens up to `end`, and sample one token after the last for each of `samplers`. With
        drafts, which follow `end` and have one sampler, sample after each of them, too.

        The sequence's tokens count as computed, and the samplers' tokens as pending, from now on: a planned step is
        always launched. Drafts do not count before the step is committed.
        """
        assert sequence.slot is not None
        start, known = sequence.num_computed, sequence.token_ids
        num_samples, seeds = len(samplers), tuple([sampler.seed for sampler in samplers])
        if drafts:
            assert end == len(known), "drafts follow a token that is known"
            assert num_samples == 1, "of one sequence"
            token_ids = (*known[start:end], *drafts)
            num_samples, seeds = 1 + len(drafts), seeds * (1 + len(drafts))
            sequence.is_verifying = True
        elif end <= len(known):
            token_ids = (known[start],) if end - start == 1 else tuple(known[start:end])
        else:
            token_ids = (*known[start:end], PENDING_TOKEN)
        history = None
        if samplers and request.needs_history:
            if not sequence.is_history_sent:
                assert not sequence.num_pending, "a slot's first sample has no pending token"
                history = tuple(known)
            # The runner does not know which tokens a beam goes on with, nor how many drafts are right.
            sequence.is_history_sent = num_samples == 1 and request.params.beam is None
        scored, pooled = (None, None) if request.reading is None else request.reading.plan_rows(start, end)
        scheduled = ScheduledSequence(  # by position, which takes half the time
            sequence.sequence_id,
            sequence.slot,
            token_ids,
            start,
            num_samples,
            request.step_params,
            seeds,
            len(known) - sequence.num_prompt_tokens + sequence.num_pending,
            history,
            sequence.num_prompt_tokens,
            scored,
            pooled,
            request.banned_next(sequence) if samplers and request.params.bad_words_ids else (),
            request.adapter,
            len(drafts),
        )
        self._has_adapters |= request.adapter != 0
        (self._single if len(token_ids) == 1 else self._chunks).append(scheduled)
        self.budget = max(0, self.budget - len(token_ids))
        sequence.num_computed = end
        for sampler in samplers:
            sampler.num_pending += 1

    def build(self, step: int) -> StepPlan:
        """The finished plan, with decodes before chunks of prompts, and rows of the same adapter together."""
        if self._has_adapters:
            for part in (self._single, self._chunks):
                part.sort(key=lambda scheduled: scheduled.adapter)
        return StepPlan(
            step=step,
            page_table_updates=tuple(self._updates),
            copies=tuple(self._copies),
            sequences=tuple(self._single + self._chunks),
            swap_outs=tuple(self._swap_outs),
            swap_ins=tuple(self._swap_ins),
        )
