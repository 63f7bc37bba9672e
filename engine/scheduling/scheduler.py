"""Which tokens are computed in the next step, and which request gives way where pages are missing.

Continuous batching over num_computed: a step is a token budget handed out to running sequences in the order of priority
and arrival, decodes first, then chunks of prompts, then new requests. Prefill and decode differ in length only. Used by
the core, from one thread. Knows pages through KVCache alone, and no tensors, texts or clocks.

A step may be planned while another one is in flight. Sequences then continue from pending tokens; the output of a
sequence that turns out to have ended is dropped. Preemption and failed allocations wait until no step is in flight.

Where several models share a page pool each has a scheduler of its own. It may ask for pages of the others (`Reclaim`),
and it gives pages up when it is told to (`give_way`).
"""

from bisect import insort
from dataclasses import dataclass

from engine.batch import StepOutput, StepPlan
from engine.config import EngineConfig
from engine.drafts.speculation import Speculation
from engine.memory.images import Images
from engine.memory.kv_cache import KVCache
from engine.request import FinishReason, Request, RequestState, Sequence
from engine.scheduling.admission_control import AdmissionControl
from engine.scheduling.beams import Beams
from engine.scheduling.chunks import ChunkPlanner, active_sequences, target_length
from engine.scheduling.in_flight import InFlight
from engine.scheduling.placement import Placement, Reclaim
from engine.scheduling.preemption import Preemption
from engine.scheduling.slots import Slots
from engine.scheduling.step_commit import CommittedStep, StepCommit
from engine.scheduling.step_plan_builder import StepPlanBuilder
from engine.scheduling.swapper import Swapper
from engine.scheduling.verification import NO_VERIFICATION, choose_verification
from engine.scheduling.waiting_queue import WaitingQueue, by_rank


@dataclass(slots=True)
class SchedulerCounters:
    """Counts since the scheduler was made."""

    num_preemptions: int = 0
    prefix_query_tokens: int = 0  #: prompt tokens of admitted requests
    prefix_hit_tokens: int = 0  #: prompt tokens of them that the prefix cache had


class Scheduler:
    """Owner of the running requests, and of the places that waiting ones have reserved at admission control.

    Swapper: see Preemption. Without `in_flight` every step is computed before the next one is planned. With a
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
        self._waiting = WaitingQueue(cache)
        self._running: list[Request] = []  # by rank
        self._beams = Beams(cache)
        self._slots = Slots(config.step_limits.max_running)
        self._chunks = ChunkPlanner(cache)
        self._preemption = Preemption(cache, self._beams, swapper)
        self._placement = Placement(cache, self._slots, self._preemption, reclaim)
        self._step_commit = StepCommit(cache, self._beams, speculation)
        self._reservations: dict[str, int] = {}  # request id -> tokens reserved at admission, until its first step
        self._step = 0
        self._is_short = False  # a request found no room in the step planned last, and waits for the steps in flight
        self._sole: Request | None = None  # the request that has the whole pool until it ends
        self.started: list[Request] = []  #: requests whose first step is the one planned last
        self.counters = SchedulerCounters()

    def note_new_pool(self, swapper: Swapper | None) -> None:
        """The page cache uses another pool from now on, and `swapper` another mirror."""
        self._chunks.note_new_pool()
        self._preemption.note_new_pool(swapper)

    # Requests come and go

    def enqueue_request(self, request: Request, num_reserved_tokens: int, images: Images = ()) -> None:
        """Queue a new request that admission control has passed, with a reservation of num_reserved_tokens."""
        self._reservations[request.request_id] = num_reserved_tokens
        for sequence in request.sequences:
            self._cache.open(sequence.sequence_id, request.arrival, request.cache_salt, images)
            self._step_commit.open(request, sequence)
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
        self._step_commit.close(sequence)
        self._slots.release(sequence)
        if not request.unfinished:
            self._end(request)

    @property
    def num_running(self) -> int:
        """Sequences with a slot."""
        return self._slots.num_taken

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
        builder = self._chunks.begin_plan(self._budget(max_tokens))
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
        if max_tokens is None or self._chunks.needs_whole_prompts:
            return self._max_batched_tokens
        return min(self._max_batched_tokens, self.num_running + max_tokens)

    def commit(self, plan: StepPlan, output: StepOutput) -> CommittedStep:
        """Take over a step's output. The caller appends the new tokens.

        Output of sequences that have ended since the step was planned is dropped. The caller decides whether a token
        ends its sequence, because stop strings need text, and calls `finish_sequence`.
        """
        self._preemption.note_costs(plan, output)
        if self._speculation is not None:
            self._speculation.note_step(plan, output)
        return self._step_commit.commit(plan, output)

    # Running requests

    def _schedule_running(self, builder: StepPlanBuilder) -> None:
        """Plan tokens of running sequences, first request first: all decodes, then all chunks of prompts."""
        prompts: list[tuple[Request, Sequence, int]] = []
        verification = NO_VERIFICATION
        # While requests wait, steps are full. A request that has the pool to itself needs all of it.
        if self._speculation is not None and not self._waiting and self._sole is None:
            verification = choose_verification(self._speculation, self._running, builder.budget, self._slots.num_free)
        plan_chunk = self._chunks.plan_chunk
        for request in list(self._running):
            for sequence in active_sequences(request):
                if sequence.sequence_id in verification.waiting:
                    continue
                target = target_length(request, sequence)
                num_left = target - sequence.num_computed
                if num_left > 1:
                    prompts.append((request, sequence, target))
                elif num_left and request.state is RequestState.RUNNING and builder.budget:
                    drafts = verification.drafts.get(sequence.sequence_id, ())
                    if (drafts and plan_chunk(builder, request, sequence, target, drafts)) or plan_chunk(
                        builder, request, sequence, target
                    ):
                        builder.scheduled.add(request)
                    else:
                        self._plan_with_preemption(builder, request, sequence, target)
        for request, sequence, target in prompts:
            if request.state is RequestState.RUNNING and builder.budget:
                self._plan_with_preemption(builder, request, sequence, target)

    def _plan_with_preemption(
        self, builder: StepPlanBuilder, request: Request, sequence: Sequence, target: int
    ) -> None:
        """Plan a chunk, preempting later requests for room. Where none is left to preempt, the sequence stays out of
        this step: it keeps its pages until an older request needs them or a finished request leaves room.

        No request is preempted while a step is in flight: that step may end requests, and pages freed since its launch
        cannot be allocated before it has ended.
        """
        while not self._chunks.plan_chunk(builder, request, sequence, target):
            if self._speculation is not None and self._speculation.free_pages():
                continue
            if self._in_flight:
                # Another attempt cannot succeed if no page has been freed since the request found no room with no step
                # in flight.
                builder.is_short |= not self._waiting.is_refused(request)
                return
            if self._reclaim is not None and self._reclaim(num_missing=1, num_wanted=1):
                continue
            last_first = reversed(self._running)
            victim = next(other for other in last_first if other is request or other not in builder.scheduled)
            if victim is request:
                self._waiting.note_refusal(request)
                return
            self._preempt(builder, victim)
        builder.scheduled.add(request)

    # Waiting requests

    def _admit_waiting(self, builder: StepPlanBuilder) -> None:
        """Start waiting requests in order of arrival. One that does not fit now is passed by those that do."""
        passed: list[Request] = []
        for request in self._waiting.candidates():
            if builder.budget == 0 or not self._slots.num_free:
                break
            if self._sole not in (None, request):
                continue
            if (not self._waiting.is_refused(request) and self._admit(builder, request)) or (
                not passed and self._placement.reclaim_for(request) and self._admit(builder, request)
            ):
                self._waiting.start(request, passed)
                insort(self._running, request, key=by_rank)
                request.state = RequestState.RUNNING
                self._chunks.plan_first_chunks(builder, request)
            elif self._waiting.may_be_passed(request):
                passed.append(request)
            else:
                break
        if self._waiting and self._speculation is not None:
            self._speculation.free_pages()  # the next step tries again

    def _admit(self, builder: StepPlanBuilder, request: Request) -> bool:
        """Give a waiting request its slots and pages; false where it does not fit."""
        if not self._placement.has_slots(request):
            return False
        if not self._placement.place(builder, request, is_alone=not (self._running or self._in_flight)):
            self._waiting.note_refusal(request)
            return False
        num_reserved = self._reservations.pop(request.request_id, None)
        if num_reserved is not None:  # a preempted request is not counted again as a query of the prefix cache
            self._admission.release_place(num_reserved)
            self.started.append(request)
            request.num_cached_tokens = min(request.unfinished[0].num_computed, request.num_prompt_tokens)
            self.counters.prefix_query_tokens += request.num_prompt_tokens
            self.counters.prefix_hit_tokens += request.num_cached_tokens
        return True

    # Requests give way

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
        builder = self._chunks.begin_plan(0)
        self._preempt(builder, self._running[-1])
        plan = builder.build(self._step)
        return plan if plan.swap_outs else None

    def give_up_pages(self) -> None:
        """Preempt all requests; they will be recomputed, those too whose pages are in the mirror. No step is in
        flight."""
        assert not self._in_flight
        self._preemption.give_up_mirror(self._waiting.all())
        builder = self._chunks.begin_plan(0)
        for request in list(self._running):
            self._preempt(builder, request)

    def _preempt(self, builder: StepPlanBuilder, request: Request) -> None:
        """Take all pages and slots of a request away and queue it again. It keeps its tokens."""
        self._preemption.take_pages(builder, request)
        for sequence in request.unfinished:
            self._slots.release(sequence)
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
        self._preemption.drop(request)
        num_reserved = self._reservations.pop(request.request_id, None)
        if num_reserved is not None:
            self._admission.release_place(num_reserved)
