"""Runs a trace through the real scheduler and the real page cache, with a cost model in place of a model.

A step takes the time to read the weights and the live KV of the batch once, or to compute its tokens, whichever is
longer. There are no tensors and no torch: only memory and the order of events are measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.memory.baselines import ContiguousCache
from benchmarks.memory.traces import TraceRequest, mean
from engine.batch import SampledToken, StepOutput
from engine.config import EngineConfig, ModelLimits
from engine.memory.kv_cache import KVCache
from engine.memory.spec import LayerSpec
from engine.request import Request
from engine.request import Sequence as RequestSequence
from engine.sampling_params import SamplingParams
from engine.scheduling.admission_control import AdmissionControl
from engine.scheduling.scheduler import Scheduler


@dataclass(frozen=True)
class CostModel:
    """Roofline of one accelerator: an H100 with an 8B model unless told otherwise."""

    weight_bytes: float = 16e9
    bytes_per_s: float = 3.0e12
    tokens_per_s: float = 25_000.0  #: of prefill, when compute is the bound

    def step_s(self, num_tokens: int, kv_bytes: int) -> float:
        return max((self.weight_bytes + kv_bytes) / self.bytes_per_s, num_tokens / self.tokens_per_s)


@dataclass
class Result:
    """Measurements of one run. Series have one entry per sampled step."""

    num_steps: int = 0
    time_s: float = 0.0
    num_preemptions: int = 0
    hit_rate: float = 0.0  #: share of prompt tokens found in the prefix cache
    held: list[int] = field(default_factory=list)  #: bytes that no other sequence or type can use
    live: list[int] = field(default_factory=list)  #: bytes that the running sequences need
    times: list[float] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)  #: sequences that decode, in steps with any
    num_output_tokens: int = 0

    @property
    def waste(self) -> float:
        """Share of the held bytes that no sequence needs, over the whole run."""
        return 1 - sum(self.live) / sum(self.held) if sum(self.held) else 0.0

    @property
    def mean_batch(self) -> float:
        return mean(self.batch)


def simulate(
    cache: KVCache | ContiguousCache,
    layers: Sequence[LayerSpec],
    trace: Sequence[TraceRequest],
    *,
    max_step_tokens: int = 2048,
    max_running: int = 256,
    cost: CostModel | None = None,
    sample_every: int = 1,
) -> Result:
    """Serve the whole trace and report. `layers` defines the live bytes; the cache may use another plan."""
    cost, need = cost or CostModel(), Need(layers)
    longest = max(len(item.prompt) + len(item.output) for item in trace) + 1
    limits = ModelLimits(longest, 1 << 31)
    admission = AdmissionControl(cache.rule, limits, max_running=max_running, max_requests=None, max_tokens=None)
    config = EngineConfig("simulated", max_batched_tokens=max_step_tokens, max_running=max_running)
    any_cache: Any = cache
    scheduler = Scheduler(config, any_cache, admission)
    pending = sorted(range(len(trace)), key=lambda index: (trace[index].arrival_s, index))
    done: set[int] = set()
    running: dict[int, Request] = {}
    result = Result()
    now = 0.0
    while pending or running:
        now = _submit(scheduler, admission, trace, pending, done, running, now)
        plan = scheduler.schedule()
        assert plan is not None
        samples = []
        for scheduled in plan.sequences:
            output = trace[scheduled.sequence_id >> 8].output
            token = SampledToken(output[min(scheduled.output_index, len(output) - 1)])
            samples.append((token,) * scheduled.num_samples)
        num_decoding = sum(len(scheduled.token_ids) == 1 for scheduled in plan.sequences)
        if num_decoding:
            result.batch.append(num_decoding)
        live = need.of_batch(plan.sequences, running.values())
        if result.num_steps % sample_every == 0:
            result.held.append(held_bytes(cache))
            result.live.append(live)
            result.times.append(now)
        now += cost.step_s(plan.num_tokens, live)
        result.num_steps += 1
        for new in scheduler.commit(plan, StepOutput(plan.step, tuple(samples))).new_tokens:
            index = new.sequence.sequence_id >> 8
            new.sequence.token_ids.append(new.sampled.token_id)
            result.num_output_tokens += 1
            if new.sequence.num_output_tokens >= len(trace[index].output):
                scheduler.finish_sequence(new.request, new.sequence, "length")
                if not new.request.unfinished:
                    done.add(index)
                    del running[index]
    result.time_s = now
    result.num_preemptions = scheduler.counters.num_preemptions
    result.hit_rate = scheduler.counters.prefix_hit_tokens / max(1, scheduler.counters.prefix_query_tokens)
    return result


def held_bytes(cache: KVCache | ContiguousCache) -> int:
    """Bytes in use, plus the bytes beside them in large pages that no other type can take."""
    if isinstance(cache, ContiguousCache):
        kind = cache.plan.types[0]
        return cache.num_reserved * kind.small_page_bytes // kind.page_tokens
    return sum((pool.num_used + pool.num_reusable_beside_used) * pool.page_bytes for pool in cache.pools)


def _submit(
    scheduler: Scheduler,
    admission: AdmissionControl,
    trace: Sequence[TraceRequest],
    pending: list[int],
    done: set[int],
    running: dict[int, Request],
    now: float,
) -> float:
    """Submit the requests that have arrived; if the scheduler is idle, advance to the next arrival. Returns the
    time."""
    ready = [i for i in pending if trace[i].after is None or trace[i].after in done]
    if not running and ready and trace[ready[0]].arrival_s > now:
        now = trace[ready[0]].arrival_s
    for index in ready:
        item = trace[index]
        if item.arrival_s > now:
            break
        pending.remove(index)
        params = SamplingParams(max_tokens=len(item.output), n=item.num_samples, ignore_eos=True)
        sequences = [
            RequestSequence(index << 8 | sample, sample, sample, list(item.prompt), len(item.prompt))
            for sample in range(item.num_samples)
        ]
        request = Request(str(index), index, item.prompt, params, sequences)
        admission.check_request(item.prompt, params, images=item.images)
        admission.reserve_place(len(item.prompt))
        scheduler.enqueue_request(request, len(item.prompt), item.images)
        running[index] = request
    return now


class Need:
    """Bytes that layers need of a sequence, by definition; layers that store alike are taken together."""

    def __init__(self, layers: Sequence[LayerSpec]) -> None:
        self._bytes: dict[tuple[str, int], int] = {}
        for spec in layers:
            if spec.shares_with is None and spec.kind not in ("cross", "vision"):
                key = (spec.kind, spec.span)
                self._bytes[key] = self._bytes.get(key, 0) + spec.bytes_per_token

    def of(self, start: int, end: int) -> int:
        """Bytes that a step on the tokens [start, end) needs: those that it reads, and those of the tokens
        themselves."""
        total = 0
        for (kind, span), num_bytes in self._bytes.items():
            match kind:
                case "full":
                    tokens = end
                case "window":
                    tokens = end - max(0, start - span + 1)
                case "chunked":
                    tokens = end - start // span * span
                case "budgeted":
                    tokens = min(end, span)
                case _:
                    tokens = 1  # a state
            total += tokens * num_bytes
        return total

    def of_batch(self, scheduled: Any, requests: Any) -> int:
        """Bytes that all running sequences need in this step; bytes that parallel samples share count once."""
        parts = {entry.sequence_id: (entry.start, entry.start + len(entry.token_ids)) for entry in scheduled}
        total = 0
        for request in requests:
            num_holding = 0
            for sequence in request.unfinished:
                start, end = parts.get(sequence.sequence_id, (sequence.num_computed, sequence.num_computed))
                if end:
                    total += self.of(start, end)
                    num_holding += 1
            if num_holding > 1:
                total -= (num_holding - 1) * self.of(request.num_prompt_tokens, request.num_prompt_tokens)
        return total
