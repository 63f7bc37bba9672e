"""The engine core: requests in, deltas out, one step at a time: schedule, launch, collect, commit.

Composes scheduler, page cache and runner, turns sampled tokens into text and ends sequences at stop strings. For one
thread: LLM calls it directly, AsyncEngine gives it a thread, EngineHost steps several in one thread, whose page caches
share a pool. Knows no asyncio; torch stays behind the Runner protocol.
"""

import itertools
import time
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.batch import SampledToken, StepPlan
from engine.config import EngineConfig
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.steering import Steering
from engine.deltas import delta_of, prompt_logprobs_of, stop_reason
from engine.memory.admission import AdmissionRule
from engine.memory.kv_cache import KVCache
from engine.memory.ledger import Ledger, PoolCell, picture, take_ledger
from engine.memory.pool_share import PoolShare
from engine.memory.spec import PoolPlan
from engine.memory.swap import MirrorPool
from engine.prompt_reading import PromptPooling, PromptScores, reading_of
from engine.ranked_samples import Rankings
from engine.request import (
    FinishReason,
    Request,
    RequestDelta,
    Sequence,
    StopStrings,
    TokenLogprob,
    request_seed,
    sample_seed,
)
from engine.sampling_params import NO_OUTPUT, PoolingParams, SamplingParams
from engine.scheduling.admission_control import AdmissionControl
from engine.scheduling.beam_search import Hypothesis
from engine.scheduling.budgeted_chunks import longest_prompt
from engine.scheduling.in_flight import InFlight
from engine.scheduling.scheduler import Reclaim, Scheduler
from engine.scheduling.swapper import Swapper
from engine.stats import EngineStats, Tally
from engine.text.sequence_text import DetokenizerFactory, SequenceText
from engine.text.thoughts import Said, ThoughtSplitter
from engine.text.tool_calls.parser import ToolCallParser

if TYPE_CHECKING:
    from engine.runner.runner import Runner


class EngineCore:
    """The engine of one model. All methods are for one thread; only `admission`, `compiler`, `limits`,
    `step_limits` and `pool_plan` are for any thread."""

    def __init__(
        self,
        runner: "Runner",
        config: EngineConfig,
        make_detokenizer: DetokenizerFactory,
        *,
        has_queue_bound: bool = True,
        clock: Callable[[], float] = time.monotonic,
        compiler: GrammarCompiler | None = None,
        share: PoolShare | None = None,
        reclaim: Reclaim | None = None,
    ) -> None:
        """has_queue_bound: False for callers that submit all their requests at once and wait, as LLM does. compiler:
        None: outputs cannot be constrained. share, reclaim: of a pool that several models share; None: the model has
        its own."""
        self._runner = runner  # only while there is one
        self._has_runner = True
        self._make_detokenizer = make_detokenizer
        self._clock = clock
        self._engine_seed = config.seed
        self.step_limits = config.step_limits
        self._cache = KVCache(
            runner.pool_plan,
            enable_prefix_caching=config.enable_prefix_caching,
            max_step_tokens=self.step_limits.max_batched_tokens,
            share=share,
        )
        rule = self._cache.rule
        longest = rule.max_tokens(runner.limits.max_model_len)
        #: The runner's limits, with max_model_len reduced to what the page pool can hold.
        self.limits = replace(runner.limits, max_model_len=longest)
        self.admission = AdmissionControl(
            rule,
            self.limits,
            max_running=self.step_limits.max_running,
            max_requests=config.max_queued_requests if has_queue_bound else None,
            max_tokens=config.max_queued_tokens if has_queue_bound else None,
            longest_prompt=longest_prompt(runner.pool_plan.smallest_budget, self.step_limits.max_batched_tokens),
        )
        self._swapper = self._make_swapper(runner, is_pool_shared=share is not None)
        self._in_flight = InFlight(self._cache, runner.max_in_flight)
        self._scheduler = Scheduler(config, self._cache, self.admission, self._swapper, self._in_flight, reclaim)
        self._requests: dict[str, Request] = {}
        self._texts: dict[int, SequenceText] = {}  # by sequence id
        self._steering = Steering(compiler or GrammarCompiler(None))
        self._unmasked: StepPlan | None = None  # launched, and waits for its masks
        self._rankings = Rankings()
        self._ready: list[RequestDelta] = []  # made between steps: aborts, and resumed requests that are complete
        self._arrivals = itertools.count()
        self._sequence_ids = itertools.count()
        self._tally = Tally(clock)
        self.last_step_s = 0.0  #: what the step collected last has taken, page moves included

    def _make_swapper(self, runner: "Runner", *, is_pool_shared: bool) -> Swapper | None:
        """None: the runner has no mirror. The cost of moves is measured beforehand."""
        if runner.mirror_plan is None:
            return None
        swapper = Swapper(self._cache, MirrorPool(runner.mirror_plan))
        trial = swapper.plan_trial_moves(in_null_pages=is_pool_shared)
        for _ in range(2):  # the first one is slower: it touches its memory for the first time
            runner.launch(trial)
            swapper.note_costs(trial, runner.collect())
        return swapper

    # Requests

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: ReadOnly[int],
        params: SamplingParams,
        *,
        resume_token_ids: ReadOnly[int] = (),
        cache_salt: bytes = b"",
    ) -> None:
        """Admission control, then `submit_reserved`. Raises InvalidRequest, ContextTooLong or QueueFull.

        resume_token_ids: output that this request already has from another replica. It counts as output in every
        respect (max_tokens, random numbers, stop strings, half characters), but its text is not emitted again.
        """
        prompt, resume = tuple(prompt_token_ids), tuple(resume_token_ids)
        self.admission.check_request(prompt, params, resume)
        self.compiler.check(params)
        self.admission.reserve_place(len(prompt) + len(resume))
        self.submit_reserved(request_id, prompt, params, resume_token_ids=resume, cache_salt=cache_salt)

    def submit_reserved(
        self,
        request_id: str,
        prompt: tuple[int, ...],
        params: SamplingParams,
        *,
        resume_token_ids: tuple[int, ...] = (),
        cache_salt: bytes = b"",
        pooling: PoolingParams | None = None,
    ) -> None:
        """Queue a request that holds a reservation of admission control. Arguments: as `add_request`.

        pooling: the request is for a vector, and params are NO_OUTPUT.
        """
        assert request_id not in self._requests
        seed = request_seed(params, self._engine_seed, request_id)
        request = Request(
            request_id=request_id,
            arrival=next(self._arrivals),
            prompt_token_ids=prompt,
            params=params,
            sequences=[
                Sequence(
                    sequence_id=next(self._sequence_ids),
                    index=index,
                    seed=sample_seed(seed, index),
                    token_ids=[*prompt, *resume_token_ids],
                    num_prompt_tokens=len(prompt),
                )
                for index in range(params.num_sequences)
            ],
            cache_salt=cache_salt,
            reading=reading_of(prompt, params, pooling, is_resumed=bool(resume_token_ids)),
            stop_ids=params.stop_ids(self.limits.eos_token_ids),
            max_length=self.limits.max_model_len,
            submitted_s=self._clock(),
        )
        self._requests[request_id] = request
        if params.is_ranked and params.beam is None:
            self._rankings.begin(request_id, params)
        for sequence in request.sequences:
            self._texts[sequence.sequence_id] = SequenceText(
                self._make_detokenizer(
                    params.skip_special_tokens, params.tool_calls.marks if params.tool_calls is not None else (), prompt
                ),
                StopStrings(params.stop, is_shown=params.include_stop_str_in_output) if params.stop else None,
                ThoughtSplitter(params.thoughts) if params.thoughts is not None else None,
                ToolCallParser(params.tool_calls, sequence.index) if params.tool_calls is not None else None,
            )
            self._steering.open(sequence.sequence_id, params, request.stop_ids)
        self._tally.num_prompt_tokens += len(prompt)
        self._scheduler.enqueue_request(request, len(prompt) + len(resume_token_ids))
        if resume_token_ids:
            self._replay(request, request.sequences[0], resume_token_ids)

    def add_pooling_request(
        self, request_id: str, prompt_token_ids: ReadOnly[int], params: PoolingParams, *, cache_salt: bytes = b""
    ) -> None:
        """A request for one vector of a prompt, which comes in its only delta. Arguments and errors: as
        `add_request`."""
        prompt = tuple(prompt_token_ids)
        self.admission.check_request(prompt, NO_OUTPUT)
        self.admission.reserve_place(len(prompt))
        self.submit_reserved(request_id, prompt, NO_OUTPUT, cache_salt=cache_salt, pooling=params)

    def abort(self, request_id: str) -> None:
        """End a request at once, waiting or running; its last deltas come with the next step. What a step in flight
        still computes for it is dropped. Unknown ids are ignored."""
        request = self._requests.get(request_id)
        if request is None:
            return
        for sequence in request.unfinished:
            output = self._texts[sequence.sequence_id]
            said = output.flush()
            self._finish(request, sequence, "abort")
            if sequence.index < request.params.n or request.params.beam is None:  # other beams have no answer
                self._ready.append(delta_of(request, sequence, output, said))

    def abort_all(self) -> None:
        """End every open request, as `abort` does."""
        for request_id in list(self._requests):
            self.abort(request_id)

    def is_open(self, request_id: str) -> bool:
        """Whether more deltas of this request may come."""
        return request_id in self._requests

    @property
    def is_idle(self) -> bool:
        """No request is open, no delta is left to fetch and no step is in flight."""
        return not (self._requests or self._ready or self._in_flight)

    # One step

    def step(self) -> list[RequestDelta]:
        """Plan, launch and collect a step, if there is work, and return what sequences gained since the last call.

        With overlap, the step launched here computes while the tokens of the step before become deltas and the next
        step is planned: the deltas returned are one step old.
        """
        deltas = self.take_ready()
        has_launched = self.launch_next()
        if self._in_flight.is_full or (not has_launched and self._in_flight):
            deltas += self.collect_oldest()
        return deltas

    def take_ready(self) -> list[RequestDelta]:
        """What sequences gained between steps."""
        deltas, self._ready = self._ready, []
        return self._ranked(deltas)

    def launch_next(self, max_tokens: int | None = None) -> bool:
        """Plan and launch a step; false where none can be planned now. Arguments: as Scheduler.schedule."""
        plan = self._scheduler.schedule(max_tokens)
        if plan is None:
            return False
        self._note_starts()
        self._launch(plan)
        return True

    def collect_oldest(self) -> list[RequestDelta]:
        """Wait for the oldest step in flight and return its deltas."""
        return self._ranked(self._collect())

    def _ranked(self, deltas: list[RequestDelta]) -> list[RequestDelta]:
        return self._rankings.rank(deltas) if self._rankings else deltas

    def _launch(self, plan: StepPlan) -> None:
        """Launch a step. If it needs masks they follow: now, computed while the step computes; or once the tokens of
        the step in flight are known, while this one computes."""
        if not plan.needs_masks or self._in_flight:
            self._unmasked = plan if plan.needs_masks else None
            self._runner.launch(plan)
        else:
            masks = self._steering.start_masks(plan)
            self._runner.launch(plan)
            self._runner.supply_masks(masks.result())
        self._in_flight.note_launch(plan)

    def _collect(self) -> list[RequestDelta]:
        output = self._runner.collect()
        self.last_step_s = output.compute_s + output.move_s
        new_tokens = self._scheduler.commit(self._in_flight.take_oldest(), output)
        advanced = self._scheduler.advanced
        self._tally.note_step(len(new_tokens) + sum([len(request.sequences) for request, _ in advanced]))
        deltas = [self._emit(new.request, new.sequence, new.sampled) for new in new_tokens]
        for request, search in advanced:
            if search.is_over:
                deltas += self._end_search(request, search.best)
        if self._unmasked is not None:
            self._runner.supply_masks(self._steering.masks(self._unmasked))
            self._unmasked = None
        for request in self._scheduler.prompts_done:
            deltas += self._end_prompt(request)
        return deltas

    def _end_search(self, request: Request, best: ReadOnly[Hypothesis]) -> list[RequestDelta]:
        """The deltas of a search that is over: one for each answer, likeliest first."""
        deltas: list[RequestDelta] = []
        for index, (sequence, hypothesis) in enumerate(zip(list(request.sequences), best, strict=True)):
            sequence.index, sequence.cumulative_logprob = index, hypothesis.cumulative_logprob
            sequence.token_ids = [*request.prompt_token_ids, *hypothesis.token_ids]
            output = self._texts[sequence.sequence_id]
            is_stopped = hypothesis.finish_reason == "stop"
            said = output.say_all(hypothesis.token_ids[:-1] if is_stopped else hypothesis.token_ids)
            self._finish(request, sequence, stop_reason(output) if is_stopped else "length")
            if index < request.params.n:
                logprobs = hypothesis.logprobs if request.params.logprobs is not None else None
                deltas.append(delta_of(request, sequence, output, said, hypothesis.token_ids, logprobs))
        if isinstance(request.reading, PromptScores):
            deltas[0].prompt_logprobs = prompt_logprobs_of(request, request.reading)
        return deltas

    def _emit(self, request: Request, sequence: Sequence, sampled: SampledToken) -> RequestDelta:
        """Turn a sequence's newest token into a delta; end the sequence if the token does."""
        output = self._texts[sequence.sequence_id]
        said, reason = self._read_newest(request, sequence, output)
        logprobs = None
        if sampled.logprob is not None:
            sequence.cumulative_logprob += sampled.logprob
        if request.params.logprobs is not None:
            assert sampled.logprob is not None
            logprobs = (TokenLogprob(sampled.token_id, sampled.logprob, sampled.top_logprobs),)
        if reason is not None:
            self._finish(request, sequence, reason)
        delta = delta_of(request, sequence, output, said, (sampled.token_id,), logprobs)
        if sequence.index == 0 and isinstance(request.reading, PromptScores):
            delta.prompt_logprobs = prompt_logprobs_of(request, request.reading)
            request.reading = None  # told; all rows have been read
        return delta

    def _end_prompt(self, request: Request) -> list[RequestDelta]:
        """End a request that wants no output: its only deltas, one for each sample."""
        deltas: list[RequestDelta] = []
        for sequence in request.unfinished:
            output = self._texts[sequence.sequence_id]
            self._finish(request, sequence, "stop" if isinstance(request.reading, PromptPooling) else "length")
            deltas.append(delta_of(request, sequence, output, Said("", "")))
        match request.reading:
            case PromptScores():
                deltas[0].prompt_logprobs = prompt_logprobs_of(request, request.reading)
            case PromptPooling():
                deltas[0].embedding = request.reading.vector()
        return deltas

    def _read_newest(
        self, request: Request, sequence: Sequence, output: SequenceText
    ) -> tuple[Said, FinishReason | None]:
        """What the newest token completes, and whether it ends the sequence. A stop token has no text."""
        steered = self._steering.get(sequence.sequence_id)
        if steered is not None and steered.is_broken:
            return output.flush(), "abort"
        reason = request.finish_reason_after(sequence)
        if reason == "stop":
            return output.flush(), stop_reason(output)
        may_stop = output.stops is not None and sequence.num_output_tokens > request.params.min_tokens
        said = output.push(sequence.token_ids[-1], may_stop=may_stop)
        if output.is_complete:
            return said, stop_reason(output)
        if steered is not None:
            newest = sequence.token_ids[-1]
            reason = steered.advance(newest, is_thinking=output.is_thinking, text=output.answered) or reason
        if reason is not None:
            said = said.then(output.flush())
        return said, stop_reason(output) if reason == "stop" else reason

    def _replay(self, request: Request, sequence: Sequence, resume_token_ids: tuple[int, ...]) -> None:
        """Feed the resumed tokens to the text of the sequence; they may turn out to end it."""
        output = self._texts[sequence.sequence_id]
        sequence.token_ids = list(request.prompt_token_ids)
        for token_id in resume_token_ids:
            sequence.token_ids.append(token_id)
            _, reason = self._read_newest(request, sequence, output)
            if reason is not None:
                self._finish(request, sequence, reason)
                self._ready.append(delta_of(request, sequence, output, Said("", "")))
                return

    def _finish(self, request: Request, sequence: Sequence, reason: FinishReason) -> None:
        self._scheduler.finish_sequence(request, sequence, reason)
        del self._texts[sequence.sequence_id]
        self._steering.close(sequence.sequence_id)
        if not request.unfinished:
            del self._requests[request.request_id]
            if reason == "abort":
                self._tally.num_aborted += 1
            else:
                self._tally.num_finished += 1

    def _note_starts(self) -> None:
        for request in self._scheduler.started:
            request.queue_s = self._clock() - request.submitted_s

    # A pool that several models share. No step of this model is in flight.

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        return self._scheduler.has_work

    @property
    def has_deltas(self) -> bool:
        """Whether `take_ready` has any."""
        return bool(self._ready)

    @property
    def num_in_flight(self) -> int:
        """Steps that were launched and not yet collected."""
        return len(self._in_flight)

    @property
    def is_full(self) -> bool:
        """Whether a step must be collected before another one is launched."""
        return self._in_flight.is_full

    @property
    def num_running_requests(self) -> int:
        """Requests that hold pages."""
        return self._scheduler.num_running_requests

    @property
    def running_since_s(self) -> float | None:
        """When the running request that is preempted last was submitted; None: none runs."""
        request = self._scheduler.oldest_running
        return None if request is None else request.submitted_s

    @property
    def num_used_large_pages(self) -> int:
        """Large pages in which the model uses a small page."""
        return self._cache.num_used_large_pages

    def would_fit(self, rule: AdmissionRule) -> bool:
        """Whether all that may be asked of this model, and all that has been, fits into another pool."""
        if rule.max_tokens(self.limits.max_model_len) < self.limits.max_model_len:
            return False
        return all(
            rule.fits_ever(
                [min(len(request.prompt_token_ids) + request.params.max_tokens, self.limits.max_model_len)]
                * request.params.num_sequences,
                len(request.prompt_token_ids),
            )
            for request in self._requests.values()
        )

    def give_way(self) -> None:
        """Preempt the latest running request: its pages are swapped out at once, or recomputed later."""
        plan = self._scheduler.give_way()
        if plan is not None:
            self._runner.launch(plan)
            assert self._swapper is not None
            self._swapper.note_costs(plan, self._runner.collect())

    def release_runner(self) -> None:
        """Give up all pages and close the runner. Requests keep their tokens, and new ones wait, until `use_runner`."""
        self._scheduler.give_up_pages()
        self._cache.drop_content()
        self._swapper = None
        self._runner.close()
        del self._runner
        self._has_runner = False

    def use_runner(self, runner: "Runner", share: PoolShare) -> None:
        """Go on with another runner of the same model, whose pool may be cut anew. The pool holds requests that are at
        least as long as before."""
        assert not self._has_runner
        assert not self._in_flight
        self._cache.cut_again(runner.pool_plan, share)
        self.admission.note_new_pool(self._cache.rule)
        self._runner, self._has_runner = runner, True
        self._swapper = self._make_swapper(runner, is_pool_shared=True)
        self._scheduler.note_new_pool(self._swapper)

    def abandon(self) -> None:
        """Give all large pages back after an error; the engine cannot be used again."""
        self._cache.abandon()

    # Views

    def stats(self) -> EngineStats:
        """A snapshot of all counters."""
        return self._tally.snapshot(self._scheduler, self._cache, self._swapper, self.admission.num_tokens)

    @property
    def compiler(self) -> GrammarCompiler:
        """Compiles the constraints of requests; for any thread."""
        return self._steering.compiler

    @property
    def pool_plan(self) -> PoolPlan:
        """How the page pool is cut."""
        return self._cache.plan

    def ledger(self) -> Ledger:
        """The bytes of the page pool by layer type and state; they add up to the pool."""
        return take_ledger(self._cache)

    def picture(self, max_cells: int = 256) -> tuple[PoolCell, ...]:
        """The page pool in address order, in at most max_cells cells. O(large pages)."""
        return picture(self._cache, max_cells)

    def check_idle(self) -> None:
        """Raise AssertionError if an idle engine still holds pages. O(1): a server calls it whenever it goes idle."""
        if not self._cache.is_unused:
            raise AssertionError("pages are used although no request is open")
        if self._swapper is not None and self._swapper.mirror.used_bytes:
            raise AssertionError("pages of the mirror are used although no request is open")

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page is accounted for. O(pool): for tests."""
        self._cache.check_integrity()
        if self._swapper is not None:
            self._swapper.mirror.check_integrity()
        if self.is_idle:
            self.check_idle()

    def close(self) -> None:
        """Free the runner: model, pages and, with several processes, the other processes."""
        self._steering.shut_down()
        if self._has_runner:
            self._runner.close()
