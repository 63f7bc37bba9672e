"""A runner around another one that computes at the worst moment that the contract of Runner allows.

Sequences go on only when their step is collected; those that are new in their slots compute at once when it is
launched, before the steps in flight, and so do pages that come back from the mirror. That is what a device with two
queues might do. A page or a table that is handed out while a step in flight still writes it changes tokens here, where
a runner that computes in order would never show it.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.batch import StepOutput, StepPlan, TokenMasks
from engine.config import ModelLimits
from engine.memory.spec import PoolPlan
from engine.scheduling.in_flight import InFlight

if TYPE_CHECKING:
    from engine.runner.runner import Runner


@dataclass(frozen=True)
class Launched:
    plan: StepPlan
    early: StepOutput | None  #: of what was computed at once
    late: StepPlan

    @property
    def early_ids(self) -> set[int]:
        return {s.sequence_id for s in self.plan.sequences} - {s.sequence_id for s in self.late.sequences}


class LateRunner:
    max_in_flight = 2

    def __init__(self, runner: "Runner", num_slots: int) -> None:
        """runner: with twice as many slots, so that a sequence that ended may compute beside the next one in its
        slot."""
        self.inner = runner
        self._num_slots = num_slots
        self._owners: dict[int, int] = {}
        self._rows: dict[int, int] = {}  # the inner runner's slot of each slot
        self._queue: deque[Launched] = deque()
        self.num_early = 0  #: sequences that were computed before a step in flight
        #: Runners of other models on the same device: their page moves and copies come first where they were launched
        #: first.
        self.peers: list[LateRunner] = []

    @property
    def limits(self) -> ModelLimits:
        return self.inner.limits

    @property
    def pool_plan(self) -> PoolPlan:
        return self.inner.pool_plan

    @property
    def mirror_plan(self) -> PoolPlan | None:
        return self.inner.mirror_plan

    def launch(self, plan: StepPlan) -> None:
        assert len(self._queue) < self.max_in_flight
        plan = self._in_own_rows(plan)
        early = self._early(plan)
        slots = {sequence.slot for sequence in early.sequences}
        late = replace(
            plan,
            page_table_updates=tuple(update for update in plan.page_table_updates if update.slot not in slots),
            sequences=tuple(sequence for sequence in plan.sequences if sequence.slot not in slots),
            swap_ins=() if early.swap_ins else plan.swap_ins,
        )
        output = None
        if early.sequences or early.swap_ins:
            self.num_early += len(early.sequences) if self._queue else 0
            output = self._run(early)
        self._queue.append(Launched(plan, output, late))

    def supply_masks(self, masks: TokenMasks) -> None:
        raise NotImplementedError("a step is divided here, and masks are for a whole one")

    def collect(self) -> StepOutput:
        launched = self._queue.popleft()
        late = self._run(launched.late)
        if launched.early is None:
            return late
        first, rest = iter(launched.early.samples), iter(late.samples)
        early_ids = launched.early_ids
        samples = tuple(next(first if s.sequence_id in early_ids else rest) for s in launched.plan.sequences)
        compute_s = launched.early.compute_s + late.compute_s
        return StepOutput(launched.plan.step, samples, compute_s, launched.early.move_s + late.move_s)

    def close(self) -> None:
        self.inner.close()

    def _run(self, plan: StepPlan) -> StepOutput:
        self.inner.launch(plan)
        return self.inner.collect()

    def _early(self, plan: StepPlan) -> StepPlan:
        """What of a plan depends on nothing that is in flight or is copied in it."""
        if plan.swap_outs or any(launched.late.swap_outs or launched.late.swap_ins for launched in self._queue):
            return StepPlan(plan.step, (), (), ())
        of_others = [launched.late for peer in self.peers if peer is not self for launched in peer._queue]
        if any(late.swap_outs or late.swap_ins or late.copies for late in of_others):
            return StepPlan(plan.step, (), (), ())
        copied = {(copy.layer_type, page) for copy in plan.copies for page in (copy.src, copy.dst)}
        tables: dict[int, set[tuple[str, int]]] = {}
        for update in plan.page_table_updates:
            if update.start == 0:
                tables.setdefault(update.slot, set()).update((update.layer_type, page) for page in update.page_ids)
        in_flight = {s.sequence_id for launched in self._queue for s in launched.plan.sequences}
        is_early = {
            s.slot
            for s in plan.sequences
            if s.slot in tables and not tables[s.slot] & copied and s.sequence_id not in in_flight
        }
        if plan.swap_ins and copied:
            return StepPlan(plan.step, (), (), ())
        return StepPlan(
            plan.step,
            tuple(update for update in plan.page_table_updates if update.slot in is_early),
            (),
            tuple(s for s in plan.sequences if s.slot in is_early),
            swap_ins=plan.swap_ins,
        )

    def _in_own_rows(self, plan: StepPlan) -> StepPlan:
        for sequence in plan.sequences:
            slot = sequence.slot
            if self._owners.get(slot) != sequence.sequence_id:
                self._owners[slot] = sequence.sequence_id
                self._rows[slot] = slot if self._rows.get(slot, slot) != slot else slot + self._num_slots
        return replace(
            plan,
            page_table_updates=tuple(replace(u, slot=self._rows[u.slot]) for u in plan.page_table_updates),
            sequences=tuple(replace(s, slot=self._rows[s.slot]) for s in plan.sequences),
        )


class ForgetfulInFlight(InFlight):
    """A fault, to see that it is noticed: the page cache is not told what is in flight, and a freed page can be had at
    once."""

    def note_launch(self, plan: StepPlan) -> None:
        self._plans.append(plan)

    def take_oldest(self) -> StepPlan:
        return self._plans.popleft()
