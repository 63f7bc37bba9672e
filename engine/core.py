"""The engine core: requests in, deltas out, one step at a time: schedule, launch, collect, commit.

Composes scheduler, page cache, runner and the open requests, which turn sampled tokens into text. For one thread: LLM
calls it directly, AsyncEngine gives it a thread, EngineHost steps several in one thread, whose page caches share a
pool. Knows no asyncio; torch stays behind the Runner protocol.
"""

import itertools
import time
from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.batch import StepPlan
from engine.config import EngineConfig
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.steering import Steering
from engine.drafts.proposer import Proposer
from engine.drafts.speculation import Speculation
from engine.memory.admission import AdmissionRule
from engine.memory.kv_cache import KVCache
from engine.memory.ledger import Ledger, PoolCell, picture, take_ledger
from engine.memory.pool_share import PoolShare
from engine.memory.spec import PoolPlan
from engine.memory.swap import MirrorPool
from engine.open_requests import OpenRequests
from engine.prompt_reading import reading_of
from engine.request import Request, RequestDelta, Sequence, request_seed, sample_seed
from engine.sampling_params import NO_OUTPUT, PoolingParams, SamplingParams
from engine.scheduling.admission_control import AdmissionControl
from engine.scheduling.budgeted_chunks import longest_prompt
from engine.scheduling.in_flight import InFlight
from engine.scheduling.placement import Reclaim
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.step_commit import NewToken
from engine.scheduling.swapper import Swapper
from engine.served_adapters import Rack, ServedAdapters
from engine.stats import EngineStats, Tally
from engine.step_cost import CostMeter
from engine.text.sequence_text import DetokenizerFactory

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
        proposer: Proposer | None = None,
        rack: Rack | None = None,
        share: PoolShare | None = None,
        reclaim: Reclaim | None = None,
    ) -> None:
        """has_queue_bound: False for callers that submit all their requests at once and wait, as LLM does. compiler:
        None: outputs cannot be constrained. proposer: None: no tokens are proposed. rack: where adapters lie; None:
        there can be none. share, reclaim: of a pool that several models share; None: the model has its own."""
        self._runner = runner  # only while there is one
        self._has_runner = True
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
        self._steering = Steering(compiler or GrammarCompiler(None))
        self._speculation: Speculation | None = None
        if proposer is not None:
            self._speculation = Speculation(
                proposer,
                config.draft_tokens,
                self._steering.allowed_drafts,
                has_steps_in_flight=runner.max_in_flight > 1,
            )
        self._scheduler = Scheduler(
            config, self._cache, self.admission, self._swapper, self._in_flight, reclaim, self._speculation
        )
        self._unmasked: StepPlan | None = None  # launched, and waits for its masks
        self.adapters = ServedAdapters(rack)
        self._ready: list[RequestDelta] = []  # made between steps: aborts, and resumed requests that are complete
        self._arrivals = itertools.count()
        self._sequence_ids = itertools.count()
        self._tally = Tally(clock)
        self._requests = OpenRequests(make_detokenizer, self._scheduler, self._steering, self.adapters, self._tally)
        self.costs = CostMeter()

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
        adapter: str = "",
    ) -> None:
        """Admission control, then `submit_reserved`. Raises InvalidRequest, ContextTooLong or QueueFull.

        adapter: the name of a loaded one; empty: the base alone.

        resume_token_ids: output that this request already has from another replica. It counts as output in every
        respect (max_tokens, random numbers, stop strings, half characters), but its text is not emitted again.
        """
        prompt, resume = tuple(prompt_token_ids), tuple(resume_token_ids)
        self.admission.check_request(prompt, params, resume)
        self.compiler.check(params, self.limits.max_model_len - len(prompt))
        self.adapters.check(adapter)
        self.admission.reserve_place(len(prompt) + len(resume))
        self.submit_reserved(
            request_id, prompt, params, resume_token_ids=resume, cache_salt=cache_salt, adapter=adapter
        )

    def submit_reserved(
        self,
        request_id: str,
        prompt: tuple[int, ...],
        params: SamplingParams,
        *,
        resume_token_ids: tuple[int, ...] = (),
        cache_salt: bytes = b"",
        pooling: PoolingParams | None = None,
        adapter: str = "",
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
            cache_salt=self.adapters.salt(adapter, cache_salt),
            adapter=self.adapters.open(adapter),
            reading=reading_of(prompt, params, pooling, is_resumed=bool(resume_token_ids)),
            stop_ids=params.stop_ids(self.limits.eos_token_ids),
            max_length=self.limits.max_model_len,
            submitted_s=self._clock(),
        )
        self._requests.open(request)
        self._tally.num_prompt_tokens += len(prompt)
        self._scheduler.enqueue_request(request, len(prompt) + len(resume_token_ids))
        if resume_token_ids:
            self._ready += self._requests.replay(request, resume_token_ids)

    def add_pooling_request(
        self,
        request_id: str,
        prompt_token_ids: ReadOnly[int],
        params: PoolingParams,
        *,
        cache_salt: bytes = b"",
        adapter: str = "",
    ) -> None:
        """A request for one vector of a prompt, which comes in its only delta. Arguments and errors: as
        `add_request`."""
        prompt = tuple(prompt_token_ids)
        self.admission.check_request(prompt, NO_OUTPUT)
        self.adapters.check(adapter)
        self.admission.reserve_place(len(prompt))
        self.submit_reserved(request_id, prompt, NO_OUTPUT, cache_salt=cache_salt, pooling=params, adapter=adapter)

    def abort(self, request_id: str) -> None:
        """End a request at once, waiting or running; its last deltas come with the next step. What a step in flight
        still computes for it is dropped. Unknown ids are ignored."""
        request = self._requests.get(request_id)
        if request is not None:
            self._ready += self._requests.abort(request)

    def abort_all(self) -> None:
        """End every open request, as `abort` does."""
        for request in self._requests.all():
            self._ready += self._requests.abort(request)

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
        return self._requests.rank(deltas)

    def launch_next(self, max_tokens: int | None = None) -> bool:
        """Plan and launch a step; false where none can be planned now. Arguments: as Scheduler.schedule."""
        started_s = self._clock()
        plan = self._scheduler.schedule(max_tokens)
        if plan is not None:
            for request in self._scheduler.started:
                request.queue_s = self._clock() - request.submitted_s
            self._launch(plan)
        self.costs.note_thread(self._clock() - started_s)
        return plan is not None

    def collect_oldest(self) -> list[RequestDelta]:
        """Wait for the oldest step in flight and return its deltas."""
        return self._requests.rank(self._collect())

    def _launch(self, plan: StepPlan) -> None:
        """Launch a step. If it needs masks they follow: at once, or when the tokens of the step in flight are known.
        A device computes meanwhile."""
        needs_masks, is_known = plan.needs_masks, not self._in_flight
        self._runner.launch(plan)
        if needs_masks and is_known:
            self._runner.supply_masks(self._steering.masks(plan))
        else:
            self._unmasked = plan if needs_masks else None
        self._in_flight.note_launch(plan)

    def _collect(self) -> list[RequestDelta]:
        output = self._runner.collect()
        started_s = self._clock()
        plan = self._in_flight.take_oldest()
        committed = self._scheduler.commit(plan, output)
        deltas = self._take_tokens(committed.new_tokens)
        self._tally.note_step(len(deltas) + sum([len(request.sequences) for request, _ in committed.advanced]))
        for request in committed.not_finite:
            if self._requests.get(request.request_id) is request:  # else it has ended, by another sample or token
                for sequence in request.unfinished:
                    self._cache.withdraw(sequence.sequence_id)
                deltas += self._requests.fail(request, "the model's logits for a token of this request are not finite")
        for request, search in committed.advanced:
            if search.is_over:
                deltas += self._requests.end_search(request, search.best)
        if self._unmasked is not None:
            self._runner.supply_masks(self._steering.masks(self._unmasked))
            self._unmasked = None
        for request in committed.prompts_done:
            deltas += self._requests.end_prompt(request)
        self.costs.note_collected(plan, output, self._clock() - started_s)
        return deltas

    def _take_tokens(self, new_tokens: ReadOnly[NewToken]) -> list[RequestDelta]:
        """The delta of each new token. Tokens behind the one that ends a sequence are dropped: there are some where
        proposed tokens were right."""
        deltas: list[RequestDelta] = []
        last: Sequence | None = None
        for request, sequence, sampled in new_tokens:
            if sequence is last:
                if sequence.is_finished:
                    continue
                assert self._speculation is not None
                self._speculation.note_saved_step()
            deltas.append(self._requests.take_token(request, sequence, sampled))
            last = sequence
        return deltas

    # A host of several models

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
            for request in self._requests.all()
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
        drafts = None if self._speculation is None else self._speculation.counters
        return self._tally.snapshot(self._scheduler, self._cache, self._swapper, self.admission.num_tokens, drafts)

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
        if self._speculation is not None:
            self._speculation.close()
        if self._has_runner:
            self._runner.close()
