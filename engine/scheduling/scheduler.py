"""Which tokens are computed in the next step, and where their keys and values go.

Continuous batching over num_computed: a step is a token budget handed out to running sequences in the order of priority
and arrival, decodes first, then chunks of prompts, then new requests. Prefill and decode differ in length only. Used by
the core, from one thread. Knows pages through KVCache and Swapper alone, and no tensors, texts or clocks.

A step may be planned while another one is in flight. Sequences then continue from pending tokens; the output of a
sequence that turns out to have ended is dropped. Preemption and failed allocations wait until no step is in flight.

Where several models share a page pool each has a scheduler of its own. It may ask for pages of the others (`Reclaim`),
and it gives pages up when it is told to (`give_way`).
"""

from bisect import insort
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple, Protocol

from engine.batch import SampledToken, ScheduledSequence, SequenceId, StepOutput, StepPlan, num_accepted
from engine.config import EngineConfig
from engine.drafts.speculation import Speculation
from engine.memory.growth import NOTHING_CHANGED
from engine.memory.images import Images
from engine.memory.kv_cache import KVCache
from engine.request import FinishReason, Request, RequestState, Sequence
from engine.scheduling.admission_control import AdmissionControl
from engine.scheduling.beam_search import BeamSearchState
from engine.scheduling.beams import Beams
from engine.scheduling.budgeted_chunks import budgeted_chunk_end
from engine.scheduling.in_flight import InFlight
from engine.scheduling.step_plan_builder import StepPlanBuilder
from engine.scheduling.swapper import Swapper
from engine.scheduling.waiting_queue import WaitingQueue, by_rank


@dataclass(slots=True)
class SchedulerCounters:
    """Counts since the scheduler was made."""

    num_preemptions: int = 0
    prefix_query_tokens: int = 0  #: prompt tokens of admitted requests
    prefix_hit_tokens: int = 0  #: prompt tokens of them that the prefix cache had


class Reclaim(Protocol):
    """Takes used pages from other models that share the pool."""

    def __call__(self, num_missing: int, num_wanted: int) -> bool:
        """Try to make so many more large pages available, for a request that takes num_wanted in all. False: the model
        is not entitled to them, or not yet; nothing may have changed."""
        ...


class NewToken(NamedTuple):
    """A sequence has got a token in this step; the core appends it. A sequence whose proposed tokens were right has got
    several, in their order."""

    request: Request
    sequence: Sequence
    sampled: SampledToken


#: No tokens to verify, and no sequence that waits to do so.
_NO_DRAFTS: tuple[dict[SequenceId, tuple[int, ...]], set[SequenceId]] = ({}, set())


class Scheduler:
    """Owner of the running requests and of the runner's slots.

    Without a swapper every preempted request is recomputed; with one, a request is recomputed where swapping costs more
    or the mirror has no room. Without `in_flight` every step is computed before the next one is planned. With a
    speculation, decodes may have proposed tokens; they never cost a request its pages.
    """

    def __init__(
        self,
        config: EngineConfig,
        cache: KVCache,
        admission: AdmissionControl,
        swapper: Swapper | None = None,
        in_flight: InFlight | None = None,
        reclaim: Reclaim | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        """reclaim: None: no other model shares the pool."""
        self._cache = cache
        self._reclaim = reclaim
        self._in_flight = InFlight(cache) if in_flight is None else in_flight
        self._speculation = speculation
        self._admission = admission
        self._max_batched_tokens = config.step_limits.max_batched_tokens
        self.note_new_pool(swapper)
        self._waiting = WaitingQueue(cache)
        self._running: list[Request] = []  # by rank
        self._beams = Beams(cache)
        self._num_slots = config.step_limits.max_running
        self._free_slots = list(range(config.step_limits.max_running - 1, -1, -1))
        self._reservations: dict[str, int] = {}  # request id -> tokens reserved at admission, until its first step
        self._by_id: dict[SequenceId, tuple[Request, Sequence]] = {}  # unfinished sequences
        self._step = 0
        self._is_short = False  # a request found no room in the step planned last, and waits for the steps in flight
        self._sole: Request | None = None  # the request that has the whole pool until it ends
        self.started: list[Request] = []  #: requests whose first step is the one planned last
        #: Beam searches that the step committed last has advanced.
        self.advanced: list[tuple[Request, BeamSearchState]] = []
        self.prompts_done: list[Request] = []  #: requests without output whose prompt the last commit has completed
        self.counters = SchedulerCounters()

    def note_new_pool(self, swapper: Swapper | None) -> None:
        """The page cache uses another pool from now on, and `swapper` another mirror."""
        self._swapper = swapper
        self._type_names = [layer_type.name for layer_type in self._cache.plan.types]
        self._smallest_budget = self._cache.plan.smallest_budget

    # Requests come and go

    def enqueue_request(self, request: Request, num_reserved_tokens: int, images: Images = ()) -> None:
        """Queue a new request that admission control has passed, with a reservation of num_reserved_tokens."""
        self._reservations[request.request_id] = num_reserved_tokens
        for sequence in request.sequences:
            self._cache.open(sequence.sequence_id, request.arrival, request.cache_salt, images)
            self._by_id[sequence.sequence_id] = (request, sequence)
        if request.params.beam is not None:
            self._beams.begin(request)
        self._waiting.enqueue(request)

    def finish_sequence(self, request: Request, sequence: Sequence, reason: FinishReason) -> None:
        """End one sequence and free its pages and slot at once. Between steps only."""
        assert sequence.finish_reason is None
        sequence.finish_reason = reason
        self._cache.close(sequence.sequence_id)
        if self._speculation is not None:
            self._speculation.forget(sequence.sequence_id)
        del self._by_id[sequence.sequence_id]
        self._free_slot(sequence)
        if not request.unfinished:
            self._end(request)

    @property
    def num_running(self) -> int:
        """Sequences with a slot."""
        return self._num_slots - len(self._free_slots)

    @property
    def num_running_requests(self) -> int:
        """Requests with at least one slot."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait, preempted ones included."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._waiting or self._running)

    @property
    def oldest_running(self) -> Request | None:
        """The first of the running requests, which is preempted last."""
        return self._running[0] if self._running else None

    # One step

    def schedule(self, max_tokens: int | None = None) -> StepPlan | None:
        """Plan the next step. None where nothing can be planned before a step in flight has been collected or another
        model has freed pages, and where no request is left. Without `in_flight`, `commit` must follow before any other
        call.

        max_tokens: of prompts, beside one token for each running sequence; None: as many as fit into a step.
        """
        if not self.has_work or (self._in_flight and self._is_short):
            return None
        self._cache.begin_step(self._step + 1)
        self.started = []
        builder = StepPlanBuilder(self._budget(max_tokens), self._type_names)
        self._schedule_running(builder)
        self._is_short = builder.is_short
        if self._running and not builder.scheduled and not self._in_flight and self._fits_alone(self._running[0]):
            self._restart_alone(builder, *self._running)
        if not builder.is_short:  # else new requests would take the pages that it waits for
            self._admit_waiting(builder)
        if not builder.scheduled:
            assert self._in_flight or self._reclaim, "there is work, and the first request fits alone"
            return None
        self._step += 1
        return builder.build(self._step)

    def _budget(self, max_tokens: int | None) -> int:
        if max_tokens is None or self._smallest_budget is not None:  # budgeted layers need whole prompts in one step
            return self._max_batched_tokens
        return min(self._max_batched_tokens, self.num_running + max_tokens)

    def commit(self, plan: StepPlan, output: StepOutput) -> list[NewToken]:
        """Take over a step's output: advance, publish full pages, fork completed prompts, advance beam searches
        (`advanced`). Returns the new tokens, which the caller appends.

        Output of sequences that have ended since the step was planned is dropped. The caller decides whether a token
        ends its sequence, because stop strings need text, and calls `finish_sequence`.
        """
        assert output.step == plan.step
        if self._swapper is not None:
            self._swapper.note_costs(plan, output)
        if self._speculation is not None:
            self._speculation.note_step(plan, output)
        new_tokens: list[NewToken] = []
        self.advanced = []
        self.prompts_done = []
        advance = self._cache.advance
        read_of = zip(plan.sequences, output.samples, output.read or repeat(None), strict=bool(output.read))
        for scheduled, samples, read in read_of:
            assert len(samples) == scheduled.num_samples
            known = self._by_id.get(scheduled.sequence_id)
            if known is None:
                continue
            request, sequence = known
            if scheduled.num_drafts:
                new_tokens += self._take_verified(request, sequence, scheduled, samples)
                continue
            num_computed = scheduled.start + len(scheduled.token_ids)
            advance(scheduled.sequence_id, sequence.token_ids, num_computed)
            if read is not None:
                assert request.reading is not None
                request.reading.take(read)
            if samples and request.params.beam is not None:
                self._advance_beam(request, sequence, samples[0])
                continue
            if not request.is_forked and num_computed >= request.num_prompt_tokens:
                self._fork(request, sequence)
            if not request.params.max_tokens and num_computed >= request.num_prompt_tokens:
                self.prompts_done.append(request)
            if samples:
                receivers = (sequence,) if len(samples) == 1 else request.sequences
                for receiver, sampled in zip(receivers, samples, strict=True):
                    receiver.num_pending -= 1
                    new_tokens.append(NewToken(request, receiver, sampled))
        return new_tokens

    def _take_verified(
        self,
        request: Request,
        sequence: Sequence,
        scheduled: ScheduledSequence,
        samples: tuple[SampledToken, ...],
    ) -> list[NewToken]:
        """The tokens of a sequence whose proposed tokens were verified: those that were right, and one more. What was
        written of the others is not committed; later tokens overwrite it."""
        assert self._speculation is not None
        drafts = scheduled.drafts
        count = num_accepted(drafts, samples)
        self._speculation.note_verified(len(drafts), count)
        sequence.num_computed += count
        sequence.num_pending -= 1
        sequence.is_verifying = False
        self._cache.advance(scheduled.sequence_id, [*sequence.token_ids, *drafts[:count]], scheduled.start + 1 + count)
        return [NewToken(request, sequence, sampled) for sampled in samples[: count + 1]]

    def _advance_beam(self, request: Request, sequence: Sequence, report: SampledToken) -> None:
        sequence.num_pending -= 1
        search = self._beams.take(request, sequence, report)
        if search is not None:
            self.advanced.append((request, search))

    # Planning

    def _schedule_running(self, builder: StepPlanBuilder) -> None:
        """Plan tokens of running sequences, first request first: all decodes, then all chunks of prompts."""
        prompts: list[tuple[Request, Sequence, int]] = []
        proposed, waiting = _NO_DRAFTS if self._speculation is None else self._speculate(self._speculation, builder)
        for request in list(self._running):
            for sequence in _active(request):
                if sequence.sequence_id in waiting:
                    continue
                target = _target(request, sequence)
                num_left = target - sequence.num_computed
                if num_left > 1:
                    prompts.append((request, sequence, target))
                elif num_left and request.state is RequestState.RUNNING and builder.budget:
                    drafts = proposed.get(sequence.sequence_id, ())
                    if (drafts and self._plan_chunk(builder, request, sequence, target, drafts)) or self._plan_chunk(
                        builder, request, sequence, target
                    ):
                        builder.scheduled.add(request)
                    else:
                        self._plan_with_preemption(builder, request, sequence, target)
        for request, sequence, target in prompts:
            if request.state is RequestState.RUNNING and builder.budget:
                self._plan_with_preemption(builder, request, sequence, target)

    def _speculate(
        self, speculation: Speculation, builder: StepPlanBuilder
    ) -> tuple[dict[SequenceId, tuple[int, ...]], set[SequenceId]]:
        """The tokens to verify in this step, and the sequences that wait for the step in flight, to verify what follows
        its tokens then. There are neither while requests wait, since steps are full then, nor where a request has the
        pool to itself."""
        if self._waiting or self._sole is not None or not speculation.may_propose(self.num_running):
            return _NO_DRAFTS
        known: list[tuple[Request, Sequence]] = []
        pending: list[tuple[Request, Sequence]] = []
        num_rows = 0
        for request in self._running:
            for sequence in _active(request):
                if _target(request, sequence) - sequence.num_computed != 1:
                    continue
                num_rows += 1
                if not request.must_wait:
                    (pending if sequence.num_pending else known).append((request, sequence))
        # Every token that is sampled has a slot: the runner has buffers for so many.
        room = min(builder.budget - num_rows, len(self._free_slots))
        if room <= 0 or not num_rows:
            return _NO_DRAFTS
        return (
            speculation.propose(known, num_rows, room) if known else {},
            speculation.waiting(pending, num_rows, room) if pending else set(),
        )

    def _plan_with_preemption(
        self, builder: StepPlanBuilder, request: Request, sequence: Sequence, target: int
    ) -> None:
        """Plan a chunk, preempting later requests for room. Where none is left to preempt, the sequence stays out of
        this step: it keeps its pages until an older request needs them or a finished request leaves room.

        No request is preempted while a step is in flight: that step may end requests, and pages freed since its launch
        cannot be allocated before it has ended.
        """
        while not self._plan_chunk(builder, request, sequence, target):
            if self._speculation is not None and self._speculation.free_pages():
                continue
            if self._in_flight:
                # Another attempt cannot succeed if no page has been freed since the request found no room with no step
                # in flight.
                builder.is_short |= not self._waiting.is_refused(request)
                return
            if self._may_reclaim(1):
                continue
            last_first = reversed(self._running)
            victim = next(other for other in last_first if other is request or other not in builder.scheduled)
            if victim is request:
                self._waiting.note_refusal(request)
                return
            self._preempt(builder, victim)
        builder.scheduled.add(request)

    def _plan_chunk(
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

    # Admission and preemption

    def _admit_waiting(self, builder: StepPlanBuilder) -> None:
        """Start waiting requests in order of arrival. One that does not fit now is passed by those that do."""
        passed: list[Request] = []
        for request in self._waiting.candidates():
            if builder.budget == 0 or not self._free_slots:
                break
            if self._sole not in (None, request):
                continue
            if (not self._waiting.is_refused(request) and self._admit(builder, request)) or (
                not passed and self._may_reclaim_for(request) and self._admit(builder, request)
            ):
                self._waiting.start(request, passed)
                self._start_running(builder, request)
            elif self._waiting.may_be_passed(request):
                passed.append(request)
            else:
                break
        if self._waiting and self._speculation is not None:
            self._speculation.free_pages()  # the next step tries again

    def _start_running(self, builder: StepPlanBuilder, request: Request) -> None:
        """Plan the first chunk of a request that has its slots and pages."""
        insort(self._running, request, key=by_rank)
        request.state = RequestState.RUNNING
        leader = request.unfinished[0]
        has_pages = self._plan_chunk(builder, request, leader, _target(request, leader))
        assert has_pages, "it was admitted with room for more"
        builder.scheduled.add(request)
        for sequence in _active(request)[1:]:  # samples that come back from the mirror
            if builder.budget:
                self._plan_chunk(builder, request, sequence, _target(request, sequence))

    def _admit(self, builder: StepPlanBuilder, request: Request) -> bool:
        """Allocate slots for a waiting request, and its pages from the mirror or for its cached prefix. False, with
        nothing allocated, where not all its tokens so far fit."""
        sequences = request.unfinished
        if len(sequences) > len(self._free_slots):
            return False
        leader = sequences[0]
        target = _target(request, leader)
        num_new = min(1, request.params.max_tokens)
        lengths = [len(sequence.token_ids) + num_new for sequence in sequences]
        # One page per running sequence stays free: an admission that preemption would soon undo is no gain.
        num_spare = self.num_running
        if self._swapper is not None and self._swapper.has(request):
            moves = self._swapper.swap_in(request, lengths, num_spare)
            if moves is None:
                self._waiting.note_refusal(request)
                return False
            builder.swap_in(moves)
            self._take_slots(sequences)
            return True
        # Rows that are still to be read must be computed. Pages of such a prompt are cached for others all the same.
        most = target - 1 if request.reading is None else min(target - 1, request.reading.next_row)
        num_hit = None
        for max_hit in (most, 0):
            num_hit = self._cache.admit(
                leader.sequence_id,
                leader.token_ids,
                max_hit,
                lengths,
                request.num_prompt_tokens,
                num_spare_pages=num_spare,
            )
            if num_hit is not None or self._running or self._in_flight:
                break
            # The request is alone in the pool and has no room: cached pages are scattered over many large pages.
            # Without them it fits.
        if num_hit is None:
            self._waiting.note_refusal(request)
            return False
        leader.num_computed = num_hit
        self._take_slots(sequences)
        self._note_first_step(request, num_hit)
        return True

    def _may_reclaim(self, num_missing: int, num_wanted: int | None = None) -> bool:
        return self._reclaim is not None and self._reclaim(num_missing, num_wanted or num_missing)

    def _may_reclaim_for(self, request: Request) -> bool:
        """Ask other models for the pages that a waiting request lacks; whether another attempt may succeed."""
        sequences = request.unfinished
        if self._reclaim is None or len(sequences) > len(self._free_slots):
            return False
        lengths = [len(sequence.token_ids) + min(1, request.params.max_tokens) for sequence in sequences]
        num_missing = self._cache.num_missing(lengths, request.num_prompt_tokens, num_spare_pages=self.num_running)
        num_wanted = self._cache.rule.large_pages(self._cache.rule.needs(lengths, request.num_prompt_tokens))
        return num_missing > 0 and self._may_reclaim(num_missing, num_wanted)

    def _take_slots(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            sequence.slot = self._free_slots.pop()
            sequence.is_table_sent = sequence.is_history_sent = False

    def _note_first_step(self, request: Request, num_hit: int) -> None:
        num_reserved = self._reservations.pop(request.request_id, None)
        if num_reserved is None:  # a preempted request is not counted again as a query of the prefix cache
            return
        self._admission.release_place(num_reserved)
        self.started.append(request)
        request.num_cached_tokens = min(num_hit, request.num_prompt_tokens)
        self.counters.prefix_query_tokens += request.num_prompt_tokens
        self.counters.prefix_hit_tokens += request.num_cached_tokens

    def _fork(self, request: Request, leader: Sequence) -> None:
        """Start the other samples of a completed prompt: they share its pages."""
        for sequence in request.unfinished:
            if sequence is not leader:
                self._cache.fork(leader.sequence_id, sequence.sequence_id)
                sequence.num_computed = leader.num_computed
        request.is_forked = True

    def _fits_alone(self, request: Request) -> bool:
        """Whether the only running request would have room without any cached pages. Not so where other models use the
        pool: then it keeps its pages and waits for theirs."""
        if self._reclaim is None:
            return True
        sequences = request.unfinished
        lengths = [len(sequence.token_ids) + 1 for sequence in sequences]
        ids = [sequence.sequence_id for sequence in sequences]
        return self._cache.fits_after_freeing(ids, lengths, request.num_prompt_tokens)

    def _restart_alone(self, builder: StepPlanBuilder, request: Request) -> None:
        """Recompute the only running request, which has no room although it fits, in an empty pool.

        Its pages are scattered over many large pages, beside cached pages. It has the pool to itself until it ends;
        otherwise it might reach the same point again and again.
        """
        self._preempt(builder, request)
        self._cache.stop_caching()
        self._sole = request

    def give_way(self) -> StepPlan | None:
        """Preempt the latest running request, for another model that shares the pool. No step is in flight.

        Returns a plan without sequences that moves its pages to the mirror, to be carried out at once; None: there is
        nothing to move.
        """
        assert not self._in_flight
        builder = StepPlanBuilder(0, self._type_names)
        self._preempt(builder, self._running[-1])
        plan = builder.build(self._step)
        return plan if plan.swap_outs else None

    def give_up_pages(self) -> None:
        """Preempt all requests; they will be recomputed, those too whose pages are in the mirror. No step is in
        flight."""
        assert not self._in_flight
        swapper, self._swapper = self._swapper, None
        builder = StepPlanBuilder(0, self._type_names)
        for request in list(self._running):
            self._preempt(builder, request)
        for request in self._waiting.all() if swapper is not None else ():
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

    def _preempt(self, builder: StepPlanBuilder, request: Request) -> None:
        """Take all pages and slots of a request away and queue it again: its pages are swapped out, or recomputed when
        it resumes. It keeps its tokens."""
        has_reports = self._beams.has_reports(request)
        moves = None if self._swapper is None or has_reports else self._swapper.swap_out(request)
        if moves is not None:
            builder.swap_out(moves)
        else:
            self._forget_computed(request)
        for sequence in request.unfinished:
            self._free_slot(sequence)
        self._cache.end_request(request.arrival)
        request.state = RequestState.WAITING
        request.num_preemptions += 1
        self.counters.num_preemptions += 1
        self._running.remove(request)
        self._waiting.enqueue(request)

    def _end(self, request: Request) -> None:
        if request.state is RequestState.WAITING:
            self._waiting.dequeue(request)
        else:
            self._running.remove(request)
        request.state = RequestState.FINISHED
        if request is self._sole:
            self._sole = None
            self._cache.go_on_caching()
        self._beams.end(request)
        self._cache.end_request(request.arrival)
        self._waiting.forget_refusal(request)
        if self._swapper is not None and self._swapper.has(request):
            self._swapper.drop(request)
        num_reserved = self._reservations.pop(request.request_id, None)
        if num_reserved is not None:
            self._admission.release_place(num_reserved)

    def _free_slot(self, sequence: Sequence) -> None:
        if sequence.slot is not None:
            self._free_slots.append(sequence.slot)
            sequence.slot = None
            sequence.is_table_sent = sequence.is_history_sent = False


def _active(request: Request) -> list[Sequence]:
    """The sequences that compute tokens now; before the fork only the leader, for all samples."""
    if len(request.sequences) == 1:
        return request.sequences
    unfinished = request.unfinished
    return unfinished if request.is_forked else unfinished[:1]


def _target(request: Request, sequence: Sequence) -> int:
    """The number of the sequence's tokens that can be computed by now: before the fork, the prompt; later, all tokens
    and the pending one, if the sequence can continue from it."""
    if not request.is_forked and len(request.sequences) > 1:
        return request.num_prompt_tokens
    if sequence.num_pending and request.can_continue_pending(sequence):
        return len(sequence.token_ids) + sequence.num_pending
    return len(sequence.token_ids)


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
