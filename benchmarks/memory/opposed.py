"""Opposed load: several models on one device, of which another one has the load in every minute.

Three ways to give them the same bytes: one pool for all (engine/hosting), a pool of equal size for each, and one pool
in the granularity of kvcached as published: pages of 2 MiB for each layer, which models exchange as a whole. The
engine cores, page caches, schedulers and turns are the real ones; a roofline takes the place of the models.
"""

import heapq
import math
import random
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from benchmarks.memory.experiments import GIB, PAGE_TOKENS, layers_of
from benchmarks.memory.simulator import CostModel, Need, held_bytes
from benchmarks.memory.traces import mean
from engine.batch import SampledToken, StepOutput, StepPlan, TokenMasks
from engine.config import EngineConfig, ModelLimits
from engine.core import EngineCore
from engine.hosting.host_core import Bounds, HostCore
from engine.memory.large_pool import LargePool
from engine.memory.planning.designs import Design
from engine.memory.planning.grouping import group_layers, split_type
from engine.memory.planning.planner import choose_design, pool_of
from engine.memory.planning.together import StoredModel, plan_together
from engine.memory.pool_share import PoolShare
from engine.memory.spec import LayerSpec, PoolPlan
from engine.sampling_params import SamplingParams
from engine.text.sequence_text import NoText

Way = Literal["shared", "split", "2 MiB per layer"]
WAYS: tuple[Way, ...] = ("shared", "split", "2 MiB per layer")
_MINUTE_S = 60.0
_KVCACHED_PAGE_BYTES = 2 << 20
#: A request counts for goodput if its first token comes within this time, as one that a person waits for.
_PATIENCE_S = 10.0
_MAX_STEP_TOKENS = 2048


@dataclass(frozen=True)
class SimulatedModel:
    """A model of the simulation: what it stores, and how much a step reads."""

    name: str
    weight_bytes: float
    num_clients: int  #: who ask one request after another in its minute
    idle_per_s: float = 0.1  #: further requests, at any time

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        return layers_of(self.name)


LLAMA = SimulatedModel("llama-3.1-8b", 16e9, 80)
GEMMA = SimulatedModel("gemma-3-12b", 24e9, 28)
JAMBA = SimulatedModel("jamba-1.5-mini", 24e9, 120)  # 12 of its 52 billion parameters are active
#: Models, bytes of all pools together, minutes.
EXPERIMENTS: Mapping[str, tuple[tuple[SimulatedModel, ...], int, int]] = {
    "two models": ((LLAMA, GEMMA), 8 * GIB, 4),
    "two and a hybrid": ((LLAMA, GEMMA, JAMBA), 9 * GIB, 6),
}
#: Further requests of a model that is idle between them: with 0.1 a second it has one nearly all the time.
_SELDOM_PER_S = 0.02
_SELDOM_MINUTES = 9


@dataclass
class _Asked:
    model: SimulatedModel
    arrival_s: float
    prompt: tuple[int, ...]
    num_output: int
    is_clients: bool  #: of one of the clients
    found_idle: bool = False  #: its model had no other request when it came
    most_active: int = 0  #: models with work at once while it ran, its own included
    first_s: float | None = None
    end_s: float | None = None


@dataclass
class _Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class RooflineRunner:
    """A Runner without a model: a step takes the time to read weights and live KV once, or to compute its tokens."""

    mirror_plan = None
    max_in_flight = 1

    def __init__(self, plan: PoolPlan, limits: ModelLimits, layers: Sequence[LayerSpec], cost: CostModel) -> None:
        self.pool_plan = plan
        self.limits = limits
        self._need = Need(layers)
        self._cost = cost
        self._outputs: deque[StepOutput] = deque()

    def launch(self, plan: StepPlan) -> None:
        live = sum(self._need.of(each.start, each.start + len(each.token_ids)) for each in plan.sequences)
        samples = tuple((SampledToken(7),) * each.num_samples for each in plan.sequences)
        self._outputs.append(StepOutput(plan.step, samples, self._cost.step_s(plan.num_tokens, live)))

    def supply_masks(self, masks: TokenMasks) -> None:
        raise NotImplementedError

    def collect(self) -> StepOutput:
        return self._outputs.popleft()

    def close(self) -> None:
        pass


@dataclass
class Outcome:
    """What one way has achieved. Series have an entry for every sampled step."""

    way: Way
    num_output_tokens: int = 0
    batches: list[int] = field(default_factory=list)  #: running sequences of the busy model
    held: list[int] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    held_of: dict[str, list[int]] = field(default_factory=dict)
    asked: list[_Asked] = field(default_factory=list)
    num_preemptions: int = 0


def opposed(names: str) -> dict[str, Any]:
    """All ways of one experiment, as plain numbers; series for the figure under "series"."""
    models, pool_bytes, minutes = EXPERIMENTS[names]
    outcomes = {way: run(way, models, pool_bytes, minutes) for way in WAYS}
    tables = {way: _summary(outcome, minutes * _MINUTE_S, models) for way, outcome in outcomes.items()}
    shared = outcomes["shared"]
    return {
        "ways": tables,
        "gain": {
            key: round(tables["shared"][key] / tables["split"][key], 2)
            for key in ("admitted_tokens", "batch", "goodput_tokens_per_s")
        },
        "series": {"times": shared.times, "held": shared.held_of},
    }


def seldom() -> dict[str, Any]:
    """Times of the requests of idle models in one pool for all three, where these requests are seldom."""
    models, pool_bytes, _ = EXPERIMENTS["two and a hybrid"]
    seldom_asked = [replace(model, idle_per_s=_SELDOM_PER_S) for model in models]
    outcome = run("shared", seldom_asked, pool_bytes, _SELDOM_MINUTES)
    summary = _summary(outcome, _SELDOM_MINUTES * _MINUTE_S, seldom_asked)
    return {key: value for key, value in summary.items() if key.startswith("idle")}


def run(way: Way, models: Sequence[SimulatedModel], pool_bytes: int, minutes: int) -> Outcome:
    """Serve `minutes` of load one way."""
    clock, outcome = _Clock(), Outcome(way)
    host, cores = _cores(way, models, pool_bytes, clock)
    needs = {model.name: Need(model.layers) for model in models}
    load = _Load(models, minutes)
    idle: list[_Asked] = []  # that found their model idle, and have not ended
    end_s, num_steps = minutes * _MINUTE_S, 0
    while clock.now < end_s:
        for asked in load.take(clock.now):
            core = cores[asked.model.name]
            asked.found_idle = core.is_idle
            if asked.found_idle:
                idle.append(asked)
            params = SamplingParams(temperature=0.0, max_tokens=asked.num_output, ignore_eos=True)
            core.add_request(str(len(outcome.asked)), asked.prompt, params)
            outcome.asked.append(asked)
        if not host.has_work:
            clock.now = min(load.next_s, end_s)
            continue
        num_active = sum(not core.is_idle for core in cores.values())
        idle = [asked for asked in idle if asked.end_s is None]
        for asked in idle:
            asked.most_active = max(asked.most_active, num_active)
        host.step()
        gained = host.take_gained()
        clock.now += sum(cores[name].costs.last.device_s for name in gained)
        for deltas in gained.values():
            for delta in deltas:
                asked = outcome.asked[int(delta.request_id)]
                outcome.num_output_tokens += len(delta.token_ids)
                asked.first_s = clock.now if asked.first_s is None else asked.first_s
                if delta.finish_reason is not None:
                    asked.end_s = clock.now
                    load.note_end(asked, clock.now)
        num_steps += 1
        if num_steps % 10 == 0:
            outcome.batches.append(cores[load.busy(clock.now).name].stats().running)
            _take_sample(outcome, cores, needs, clock.now)
    outcome.num_preemptions = sum(core.stats().preemptions_total for core in cores.values())
    return outcome


def _take_sample(outcome: Outcome, cores: Mapping[str, EngineCore], needs: Mapping[str, Need], now: float) -> None:
    held = {name: held_bytes(core._cache) for name, core in cores.items()}
    live = sum(
        needs[name].of(tables.num_filled, tables.num_filled)
        for name, core in cores.items()
        for tables in core._cache.sequences()
        if tables.num_filled
    )
    outcome.held.append(sum(held.values()))
    outcome.live.append(live)
    outcome.times.append(round(now, 2))
    for name, num_bytes in held.items():
        outcome.held_of.setdefault(name, []).append(num_bytes)


def _cores(
    way: Way, models: Sequence[SimulatedModel], pool_bytes: int, clock: _Clock
) -> tuple[HostCore, dict[str, EngineCore]]:
    host, cores = HostCore(), dict[str, EngineCore]()
    large_pool: LargePool | None = None
    for model, plan in zip(models, _plans(way, models, pool_bytes), strict=True):
        share = None
        if way != "split":
            large_pool = large_pool or LargePool(plan.num_large_pages)
            host.use_pool(large_pool)
            share = PoolShare(large_pool)
        config = EngineConfig(
            "simulated", max_batched_tokens=_MAX_STEP_TOKENS, max_running=256, enable_prefix_caching=False
        )
        runner = RooflineRunner(plan, ModelLimits(16_384, 1 << 31), model.layers, CostModel(model.weight_bytes))
        core = EngineCore(
            runner,
            config,
            lambda skip, shown, prompt: NoText(),
            has_queue_bound=False,
            clock=clock,
            share=share,
            reclaim=None if share is None else host.reclaim_for(model.name),
        )
        host.add(model.name, core, Bounds())
        cores[model.name] = core
    return host, cores


def _plans(way: Way, models: Sequence[SimulatedModel], pool_bytes: int) -> list[PoolPlan]:
    if way == "split":
        return [
            pool_of(choose_design(model.layers, page_tokens=PAGE_TOKENS), pool_bytes // len(models)) for model in models
        ]
    if way == "shared":
        stored = {model.name: StoredModel(model.layers, PAGE_TOKENS) for model in models}
        together = plan_together(stored, pool_bytes=pool_bytes)
        return [pool_of(together.designs[model.name], pool_bytes) for model in models]
    return [pool_of(_by_layer(model.layers), pool_bytes) for model in models]


def _by_layer(layers: Sequence[LayerSpec]) -> Design:
    """Every layer by itself in large pages of 2 MiB, keys and values together; a state takes an even part of one."""
    parts = []
    for kind in group_layers(layers, page_tokens=PAGE_TOKENS):
        size = next(size for size in (1 << bits for bits in range(22)) if size >= kind.layer_page_bytes)
        parts += split_type(kind, 1, page_bytes=size)
    return Design("2 MiB per layer", tuple(parts), _KVCACHED_PAGE_BYTES)


class _Load:
    """Who asks when: in every minute the clients of another model, and a few further requests for each at any time.
    300 tokens in and 800 out, log-normal."""

    def __init__(self, models: Sequence[SimulatedModel], minutes: int) -> None:
        self._models = models
        self._rng = random.Random(0)
        self._waiting: list[tuple[float, int, _Asked]] = []  # a heap, by arrival
        self._num_asked = 0
        for which, model in enumerate(models):
            for minute in range(which, minutes, len(models)):
                for client in range(model.num_clients):  # they come within the first seconds
                    self._ask(model, minute * _MINUTE_S + 5.0 * client / model.num_clients, is_clients=True)
            now = self._rng.expovariate(model.idle_per_s)
            while now < minutes * _MINUTE_S:
                self._ask(model, now, is_clients=False)
                now += self._rng.expovariate(model.idle_per_s)

    def busy(self, now: float) -> SimulatedModel:
        return self._models[int(now // _MINUTE_S) % len(self._models)]

    @property
    def next_s(self) -> float:
        return self._waiting[0][0] if self._waiting else math.inf

    def take(self, now: float) -> Iterator[_Asked]:
        while self.next_s <= now:
            yield heapq.heappop(self._waiting)[2]

    def note_end(self, asked: _Asked, now: float) -> None:
        """A client asks again, as long as it is its model's minute."""
        if asked.is_clients and self.busy(now) is asked.model:
            self._ask(asked.model, now, is_clients=True)

    def _ask(self, model: SimulatedModel, arrival_s: float, *, is_clients: bool) -> None:
        rng = self._rng
        num_prompt, num_output = (min(4000, max(8, round(rng.lognormvariate(0, 0.6) * mu))) for mu in (250, 670))
        prompt = tuple(rng.randrange(1, 1 << 30) for _ in range(num_prompt))
        asked = _Asked(model, arrival_s, prompt, num_output, is_clients)
        heapq.heappush(self._waiting, (arrival_s, self._num_asked, asked))
        self._num_asked += 1


def _summary(outcome: Outcome, seconds: float, models: Sequence[SimulatedModel]) -> dict[str, Any]:
    good = [
        asked for asked in outcome.asked if asked.first_s is not None and asked.first_s - asked.arrival_s <= _PATIENCE_S
    ]
    finished = [asked for asked in good if asked.end_s is not None]
    idle = [asked for asked in outcome.asked if asked.found_idle and _stays_idle(asked, models)]
    ratios = {num: sorted(_over_alone(asked) for asked in idle if asked.most_active == num) for num in (1, 2, 3)}
    beside_one, beside_two = [*ratios[1], *ratios[2]], ratios[3]
    return {
        "admitted_tokens": sum(len(asked.prompt) + asked.num_output for asked in good),
        "batch": round(mean(outcome.batches), 2),
        "goodput_tokens_per_s": round(sum(asked.num_output for asked in finished) / seconds, 1),
        "output_tokens_per_s": round(outcome.num_output_tokens / seconds, 1),
        "waste": round(1 - sum(outcome.live) / max(1, sum(outcome.held)), 5),
        "idle_median": round(statistics.median(beside_one), 2) if beside_one else None,
        "idle_worst": round(max(beside_one), 2) if beside_one else None,
        "idle_requests": len(beside_one),
        "idle_worst_beside_two": round(max(beside_two), 2) if beside_two else None,
        "idle_requests_beside_two": len(beside_two),
        "preemptions": outcome.num_preemptions,
    }


def _stays_idle(asked: _Asked, models: Sequence[SimulatedModel]) -> bool:
    """Whether the request ended, and no minute of its model began before."""
    if asked.end_s is None:
        return False
    minutes = range(int(asked.arrival_s // _MINUTE_S), int(asked.end_s // _MINUTE_S) + 1)
    return all(models[minute % len(models)] is not asked.model for minute in minutes)


def _over_alone(asked: _Asked) -> float:
    """The time of the request over its time alone."""
    return ((asked.end_s or 0.0) - asked.arrival_s) / _alone_s(asked)


def _alone_s(asked: _Asked) -> float:
    """How long the request takes on the device alone."""
    cost, need = CostModel(asked.model.weight_bytes), Need(asked.model.layers)
    num_prompt = len(asked.prompt)
    seconds = sum(
        cost.step_s(
            min(_MAX_STEP_TOKENS, num_prompt - start), need.of(start, min(start + _MAX_STEP_TOKENS, num_prompt))
        )
        for start in range(0, num_prompt, _MAX_STEP_TOKENS)
    )
    return seconds + sum(
        cost.step_s(1, need.of(num_prompt + index, num_prompt + index + 1)) for index in range(asked.num_output - 1)
    )
