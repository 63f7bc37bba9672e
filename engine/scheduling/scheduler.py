"""Which tokens are computed in the next step, and where their keys and values go.

Continuous batching over num_computed: a step is a token budget handed out to running sequences in order of arrival,
decodes first, then chunks of prompts, then newcomers. Prefill and decode differ in length only. Used by the core,
from one thread. Knows pages through KVCache and Swapper alone, and no tensors, texts or clocks.

A step may be planned while another one is in flight. Sequences go on from tokens that nobody has seen yet; one that
turns out to have ended has computed a step for nothing. What cannot be planned so waits until nothing is in flight:
preemption, and whoever finds no room.
"""

from bisect import insort
from dataclasses import dataclass
from typing import NamedTuple

from engine.batch import SampledToken, SequenceId, StepOutput, StepPlan
from engine.config import EngineConfig
from engine.memory.images import Images
from engine.memory.kv_cache import KVCache
from engine.request import FinishReason, Request, RequestState, Sequence
from engine.scheduling.admission_control import AdmissionControl
from engine.scheduling.in_flight import InFlight
from engine.scheduling.step_plan_builder import StepPlanBuilder
from engine.scheduling.swapper import Swapper
from engine.scheduling.waiting_queue import WaitingQueue, by_arrival


@dataclass(slots=True)
class SchedulerCounters:
    """Since the scheduler was made."""

    num_preemptions: int = 0
    prefix_query_tokens: int = 0  #: prompt tokens of admitted requests
    prefix_hit_tokens: int = 0  #: of these, found in the prefix cache


class NewToken(NamedTuple):
    """A sequence has got a token in this step; it is already appended."""

    request: Request
    sequence: Sequence
    sampled: SampledToken


class Scheduler:
    """Owner of the running requests and of the runner's slots.

    Without a swapper preempted requests are always recomputed; with one, where swapping costs more or finds no room.
    Without steps in flight, every step is computed before the next one is planned.
    """

    def __init__(
        self,
        config: EngineConfig,
        cache: KVCache,
        admission: AdmissionControl,
        swapper: Swapper | None = None,
        in_flight: InFlight | None = None,
    ) -> None:
        self._cache = cache
        self._in_flight = InFlight(cache) if in_flight is None else in_flight
        self._swapper = swapper
        self._admission = admission
        self._max_batched_tokens = config.max_batched_tokens
        self._type_names = [layer_type.name for layer_type in cache.plan.types]
        self._waiting = WaitingQueue(cache)
        self._running: list[Request] = []  # by arrival
        self._num_slots = config.max_running
        self._free_slots = list(range(config.max_running - 1, -1, -1))
        self._unreserved: dict[str, int] = {}  # request id -> tokens reserved at admission, until its first step
        self._by_id: dict[SequenceId, tuple[Request, Sequence]] = {}  # unfinished sequences
        self._step = 0
        self._is_short = False  # somebody found no room in the step planned last, and waits for those in flight
        self._loner: Request | None = None  # who has the pool to itself until it ends
        self.started: list[Request] = []  #: requests whose first step is the one planned last
        self.counters = SchedulerCounters()

    # Requests come and go

    def add(self, request: Request, num_reserved_tokens: int, images: Images = ()) -> None:
        """Queue a new request. Admission control has passed it and holds num_reserved_tokens for it."""
        self._unreserved[request.request_id] = num_reserved_tokens
        for sequence in request.sequences:
            self._cache.open(sequence.sequence_id, request.arrival, request.cache_salt, images)
            self._by_id[sequence.sequence_id] = (request, sequence)
        self._waiting.add(request)

    def finish(self, request: Request, sequence: Sequence, reason: FinishReason) -> None:
        """End one sequence and free its pages and slot at once. Between steps only."""
        assert sequence.finish_reason is None
        sequence.finish_reason = reason
        self._cache.close(sequence.sequence_id)
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
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running)

    # One step

    def schedule(self) -> StepPlan | None:
        """Plan the next step; None where there is nothing to do before what is in flight has been collected, or nothing
        at all. Without in_flight, `commit` must follow before anything else."""
        if not self.has_work or (self._in_flight and self._is_short):
            return None
        self._cache.begin_step(self._step + 1)
        self.started = []
        builder = StepPlanBuilder(self._max_batched_tokens, self._type_names)
        self._schedule_running(builder)
        self._is_short = builder.is_short
        if self._running and not builder.scheduled and not self._in_flight:
            self._leave_alone(builder, *self._running)
        if not builder.is_short:  # else newcomers would take what it waits for
            self._admit_waiting(builder)
        if not builder.scheduled:
            assert self._in_flight, "there is work, and the oldest request fits alone"
            return None
        self._step += 1
        return builder.finish(self._step)

    def commit(self, plan: StepPlan, output: StepOutput) -> list[NewToken]:
        """Take what the step has computed: advance, publish full pages, fork completed prompts, append new tokens.

        What belongs to sequences that have ended since the step was planned is dropped. Whether a token ends its
        sequence is the caller's decision (stop strings need text); it calls `finish`.
        """
        assert output.step == plan.step
        if self._swapper is not None:
            self._swapper.note_costs(plan, output)
        new_tokens: list[NewToken] = []
        for scheduled, samples in zip(plan.sequences, output.samples, strict=True):
            assert len(samples) == scheduled.num_samples
            known = self._by_id.get(scheduled.sequence_id)
            if known is None:
                continue
            request, sequence = known
            num_computed = scheduled.start + len(scheduled.token_ids)
            self._cache.advance(scheduled.sequence_id, sequence.token_ids, num_computed)
            if not request.is_forked and num_computed >= request.num_prompt_tokens:
                self._fork(request, sequence)
            if samples:
                receivers = [sequence] if len(samples) == 1 else request.sequences
                for receiver, sampled in zip(receivers, samples, strict=True):
                    receiver.token_ids.append(sampled.token_id)
                    receiver.num_pending -= 1
                    new_tokens.append(NewToken(request, receiver, sampled))
        return new_tokens

    # Planning

    def _schedule_running(self, builder: StepPlanBuilder) -> None:
        """Give running sequences their tokens, oldest request first: all decodes, then all chunks of prompts."""
        prompts: list[tuple[Request, Sequence, int]] = []
        for request in list(self._running):
            for sequence in _active(request):
                target = _target(request, sequence)
                num_left = target - sequence.num_computed
                if num_left > 1:
                    prompts.append((request, sequence, target))
                elif num_left and request.state is RequestState.RUNNING and builder.budget:
                    self._plan_with_preemption(builder, request, sequence, target)
        for request, sequence, target in prompts:
            if request.state is RequestState.RUNNING and builder.budget:
                self._plan_with_preemption(builder, request, sequence, target)

    def _plan_with_preemption(
        self, builder: StepPlanBuilder, request: Request, sequence: Sequence, target: int
    ) -> None:
        """Plan a chunk, preempting younger requests for room. With none left the sequence stays out of this step: it
        keeps its pages until an older request needs them or a finished one leaves room.

        Nobody is preempted while a step is in flight: that may end requests, and what has been freed since it was
        launched cannot be had before it has ended."""
        while not self._plan_chunk(builder, request, sequence, target):
            if self._in_flight:
                # In vain, if nothing has been freed since it last found no room with nothing in flight.
                builder.is_short |= not self._waiting.is_refused(request)
                return
            youngest_first = reversed(self._running)
            victim = next(other for other in youngest_first if other is request or other not in builder.scheduled)
            if victim is request:
                self._waiting.refuse(request)
                return
            self._preempt(builder, victim)
        builder.scheduled.add(request)

    def _plan_chunk(self, builder: StepPlanBuilder, request: Request, sequence: Sequence, target: int) -> bool:
        """Plan as many of the sequence's tokens up to `target` as the budget allows; false where pages are missing."""
        start = sequence.num_computed
        end = self._cache.chunk_end(start, min(target, start + builder.budget))
        extension = self._cache.extend(sequence.sequence_id, start, end)
        if extension is None:
            return False
        if not sequence.is_table_sent:
            builder.send_table(sequence, self._cache.page_table(sequence.sequence_id))
        elif extension.changes:
            builder.send_changes(sequence, extension)
        if extension.copies:
            builder.copy(extension)
        builder.add(request, sequence, end, _samplers(request, sequence) if end == target else ())
        return True

    # Admission and preemption

    def _admit_waiting(self, builder: StepPlanBuilder) -> None:
        """Start waiting requests in order of arrival. One that does not fit now is passed by those that do."""
        passed: list[Request] = []
        for request in self._waiting.candidates():
            if builder.budget == 0 or not self._free_slots:
                break
            if self._loner not in (None, request):
                continue
            if not self._waiting.is_refused(request) and self._admit(builder, request):
                self._waiting.start(request, passed)
                insort(self._running, request, key=by_arrival)
                request.state = RequestState.RUNNING
                leader = request.unfinished[0]
                has_pages = self._plan_chunk(builder, request, leader, _target(request, leader))
                assert has_pages, "it was admitted with room for more"
                builder.scheduled.add(request)
                for sequence in _active(request)[1:]:  # samples that come back from the mirror
                    if builder.budget:
                        self._plan_chunk(builder, request, sequence, _target(request, sequence))
            else:
                if not self._waiting.may_be_passed(request):
                    break
                passed.append(request)

    def _admit(self, builder: StepPlanBuilder, request: Request) -> bool:
        """Give a waiting request its slots, and its pages from the mirror or its cached prefix, if all its tokens so
        far fit."""
        sequences = request.unfinished
        if len(sequences) > len(self._free_slots):
            return False
        leader = sequences[0]
        target = _target(request, leader)
        lengths = [len(sequence.token_ids) + 1 for sequence in sequences]
        # One page per running sequence is left free: an admission that would soon have to be undone is no gain.
        num_spare = self.num_running
        if self._swapper is not None and self._swapper.has(request):
            moves = self._swapper.swap_in(request, lengths, num_spare)
            if moves is None:
                self._waiting.refuse(request)
                return False
            builder.swap_in(moves)
            self._take_slots(sequences)
            return True
        num_hit = None
        for max_hit in (target - 1, 0):
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
            # Alone in the pool, yet no room: cached pages scattered over many large pages. Without them it fits.
        if num_hit is None:
            self._waiting.refuse(request)
            return False
        leader.num_computed = num_hit
        self._take_slots(sequences)
        self._first_step(request, num_hit)
        return True

    def _take_slots(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            sequence.slot = self._free_slots.pop()
            sequence.is_table_sent = sequence.is_history_sent = False

    def _first_step(self, request: Request, num_hit: int) -> None:
        num_reserved = self._unreserved.pop(request.request_id, None)
        if num_reserved is None:  # it was preempted: not a new query
            return
        self._admission.release(num_reserved)
        self.started.append(request)
        request.num_cached_tokens = min(num_hit, request.num_prompt_tokens)
        self.counters.prefix_query_tokens += request.num_prompt_tokens
        self.counters.prefix_hit_tokens += request.num_cached_tokens

    def _fork(self, request: Request, leader: Sequence) -> None:
        """The prompt is complete: every other sample shares its pages from here on."""
        for sequence in request.unfinished:
            if sequence is not leader:
                self._cache.fork(leader.sequence_id, sequence.sequence_id)
                sequence.num_computed = leader.num_computed
        request.is_forked = True

    def _leave_alone(self, builder: StepPlanBuilder, request: Request) -> None:
        """The only one left has no room, though it fits: its pages lie scattered over many large pages, beside cached
        ones. It starts again in an empty pool, and has that to itself; else it might come to the same point for ever.
        """
        self._preempt(builder, request)
        self._cache.stop_caching()
        self._loner = request

    def _preempt(self, builder: StepPlanBuilder, request: Request) -> None:
        """Take all pages and slots of a request away; it waits again, to get its pages back or to recompute them. Its
        tokens are kept."""
        moves = self._swapper.swap_out(request) if self._swapper is not None else None
        if moves is not None:
            builder.swap_out(moves)
        else:
            for sequence in request.unfinished:
                self._cache.free(sequence.sequence_id)
                sequence.num_computed = 0
            request.is_forked = False
        for sequence in request.unfinished:
            self._free_slot(sequence)
        self._cache.end_request(request.arrival)
        request.state = RequestState.WAITING
        request.num_preemptions += 1
        self.counters.num_preemptions += 1
        self._running.remove(request)
        self._waiting.add(request)

    def _end(self, request: Request) -> None:
        (self._waiting if request.state is RequestState.WAITING else self._running).remove(request)
        request.state = RequestState.FINISHED
        if request is self._loner:
            self._loner = None
            self._cache.go_on_caching()
        self._cache.end_request(request.arrival)
        self._waiting.forget(request)
        if self._swapper is not None and self._swapper.has(request):
            self._swapper.drop(request)
        num_reserved = self._unreserved.pop(request.request_id, None)
        if num_reserved is not None:
            self._admission.release(num_reserved)

    def _free_slot(self, sequence: Sequence) -> None:
        if sequence.slot is not None:
            self._free_slots.append(sequence.slot)
            sequence.slot = None
            sequence.is_table_sent = sequence.is_history_sent = False


def _active(request: Request) -> list[Sequence]:
    """The sequences that compute tokens now: before the fork only the leader does, for all."""
    unfinished = request.unfinished
    return unfinished if request.is_forked else unfinished[:1]


def _target(request: Request, sequence: Sequence) -> int:
    """Up to where the sequence's tokens can be computed now: before the fork, to the end of the prompt; later, where
    they depend on tokens that nobody knows yet, no further."""
    if not request.is_forked and len(request.sequences) > 1:
        return request.num_prompt_tokens
    if sequence.num_pending and request.goes_on_unseen(sequence):
        return len(sequence.token_ids) + sequence.num_pending
    return len(sequence.token_ids)


def _samplers(request: Request, sequence: Sequence) -> list[Sequence]:
    """Who gets a token when this sequence has reached its target: itself; all samples, when their prompt is complete;
    nobody, when a preempted request computes its prompt again and every sample has tokens already."""
    if request.is_forked or len(request.sequences) == 1:
        return [sequence]
    return [] if sequence.num_output_tokens else request.sequences
