"""Hosts over runners without models, whose pages lie in one memory: a page that two models use at once is noticed."""

import random
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

from engine.config import EngineConfig, ModelLimits
from engine.core import EngineCore
from engine.errors import InvalidRequest, QueueFull
from engine.hosting.host_core import Bounds, HostCore
from engine.memory.large_pool import LargePool
from engine.memory.planning.together import StoredModel, plan_together
from engine.memory.pool_share import PoolShare
from engine.memory.spec import LayerSpec, LayerType, PoolPlan
from engine.request import RequestDelta
from engine.sampling_params import SamplingParams
from tests.engine.fakes import EOS, VOCAB_SIZE, Clock, LetterDetokenizer, PagedFakeRunner, Steps, continuation
from tests.engine.late_runner import LateRunner

_UNIT = 4  #: bytes
Entry = tuple[int, int]


class TypeMemory(MutableMapping[int, Entry]):
    """The entries of one layer type, by token slot, in the memory of all models: an entry fills all its bytes."""

    def __init__(self, memory: dict[int, tuple[str, Entry]], kind: LayerType) -> None:
        self._memory = memory
        self._name = f"{kind.spec.model} {kind.name}"
        self._page_bytes, self._page_tokens = kind.small_page_bytes, kind.page_tokens
        self._slot_bytes = kind.content_bytes // kind.page_tokens
        assert self._slot_bytes % _UNIT == 0 == self._page_bytes % _UNIT

    def _units(self, slot: int) -> range:
        page, offset = divmod(slot, self._page_tokens)
        first = page * self._page_bytes + offset * self._slot_bytes
        return range(first, first + self._slot_bytes, _UNIT)

    def __getitem__(self, slot: int) -> Entry:
        entries = {self._memory.get(unit) for unit in self._units(slot)}
        if len(entries) != 1 or None in entries or (entry := entries.pop()) is None or entry[0] != self._name:
            raise KeyError(slot)
        return entry[1]

    def __setitem__(self, slot: int, entry: Entry) -> None:
        for unit in self._units(slot):
            self._memory[unit] = self._name, entry

    def __delitem__(self, slot: int) -> None:
        self[slot]
        for unit in self._units(slot):
            del self._memory[unit]

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


@dataclass
class SharedFakeRunner(PagedFakeRunner):
    """A PagedFakeRunner in a memory that others share."""

    shared: dict[int, tuple[str, Entry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        views = {kind.name: TypeMemory(self.shared, kind) for kind in self.pool_plan.types}
        self._memory = views  # type: ignore[assignment]


@dataclass
class FakeModel:
    """A model of a FakeHost, and what it takes to give it a runner."""

    name: str
    config: EngineConfig
    core: EngineCore
    ceiling: int | None
    runners: list[SharedFakeRunner]
    text_s: float = 0.0  #: that a text takes the thread for each token


@dataclass
class _TimedDetokenizer(LetterDetokenizer):
    """Takes a model's text_s for each token, by the clock."""

    host: "FakeHost"
    name: str

    def push(self, token_ids: Sequence[int]) -> str:
        self.host.clock.now += self.host.models[self.name].text_s * len(token_ids)
        return super().push(token_ids)


@dataclass
class FakeHost:
    """Cores over one memory, in a HostCore."""

    layers: dict[str, tuple[LayerSpec, ...]]
    num_large_pages: int
    page_tokens: int = 4
    steps: Steps = "in turn"
    seconds_per_token: float = 0.001
    max_model_len: int = 1024
    models: dict[str, FakeModel] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    late_runners: list[LateRunner] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.layers = {
            name: tuple(replace(spec, model=name) for spec in layers) for name, layers in self.layers.items()
        }
        self.together = plan_together({name: self._stored(name) for name in self.layers})
        self.large_pool = LargePool(self.num_large_pages + 1)
        self.memory: dict[int, tuple[str, Entry]] = {}
        self.host = HostCore()
        self.host.use_pool(self.large_pool)
        self.turns: list[str] = []  # whose steps were launched

    def _stored(self, name: str) -> StoredModel:
        return StoredModel(self.layers[name], self.page_tokens)

    def plan(self, name: str) -> PoolPlan:
        return PoolPlan(self.together.designs[name].types, self.together.large_page_bytes, self.num_large_pages + 1)

    def add(
        self, name: str, *, floor: int = 0, ceiling: int | None = None, num_mirror: int = 0, **settings: object
    ) -> EngineCore:
        config = EngineConfig("fake", page_tokens=self.page_tokens, **settings)  # type: ignore[arg-type]
        runners: list[SharedFakeRunner] = []
        core = EngineCore(
            self._runner(name, config, num_mirror, runners),
            config,
            lambda skip, shown, prompt: _TimedDetokenizer(self, name),
            clock=self.clock,
            share=PoolShare(self.large_pool, ceiling),
            reclaim=self.host.reclaim_for(name),
        )
        self.models[name] = FakeModel(name, config, core, ceiling, runners)
        self.host.add(name, core, Bounds(floor, ceiling))
        return core

    def _runner(
        self, name: str, config: EngineConfig, num_mirror: int, runners: list[SharedFakeRunner]
    ) -> "SharedFakeRunner | LateRunner":
        plan, num_slots = self.plan(name), config.step_limits.max_running
        mirror = PoolPlan(plan.types, plan.large_page_bytes, num_mirror + 1) if num_mirror else None
        runner = SharedFakeRunner(
            plan,
            2 * num_slots if self.steps == "late" else num_slots,
            ModelLimits(self.max_model_len, VOCAB_SIZE, frozenset({EOS})),
            mirror,
            max_in_flight=1 if self.steps == "in turn" else 2,
            seconds_per_token=self.seconds_per_token,
            shared=self.memory,
        )
        runners.append(runner)
        if self.steps != "late":
            return runner
        late = LateRunner(runner, num_slots)
        late.peers = self.late_runners
        self.late_runners.append(late)
        return late

    def step(self) -> dict[str, list[RequestDelta]]:
        self.clock.now += 0.001
        before = {name: self.num_launched(name) for name in self.models}
        self.host.step()
        self.turns += [name for name in self.models if self.num_launched(name) > before[name]]
        return self.host.take_gained()

    def num_launched(self, name: str) -> int:
        return sum(bool(plan.sequences) for runner in self.models[name].runners for plan in runner.plans)

    def sleep(self, name: str) -> dict[str, list[RequestDelta]]:
        self.host.collect_all(name)
        self.models[name].core.release_runner()
        self.host.note_awake(name, False)
        return self.host.take_gained()

    def wake(self, name: str) -> None:
        model = self.models[name]
        runner = self._runner(name, model.config, 0, model.runners)
        model.core.use_runner(runner, PoolShare(self.large_pool, model.ceiling))
        self.host.note_awake(name, True)

    def check(self) -> None:
        for model in self.models.values():
            model.core.check_integrity()
        assert sum(model.core.num_used_large_pages for model in self.models.values()) == self.large_pool.num_used

    def run(self, max_steps: int = 20_000) -> dict[str, dict[str, list[int]]]:
        """Step until there is no work; tokens by model and request."""
        found: dict[str, dict[str, list[int]]] = {name: {} for name in self.models}
        for _ in range(max_steps):
            if not self.host.has_work:
                self.check()
                return found
            for name, deltas in self.step().items():
                for delta in deltas:
                    found[name].setdefault(delta.request_id, []).extend(delta.token_ids)
        raise AssertionError("the host does not finish")


@dataclass
class Loads:
    """Random requests for the models of a host, what each must bring and what it has brought."""

    host: FakeHost
    random: random.Random
    longest: int = 20
    expected: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)
    brought: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)
    reasons: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def arrive(self, name: str, request_id: str) -> None:
        choose, core = self.random, self.host.models[name].core
        prompt = choose.choice([[5, 6, 7, 8, 9, 10], [9] * 4, [3]]) * choose.randint(1, 4)
        prompt += [choose.randrange(2, 100) for _ in range(choose.randint(0, 6))]
        seed = choose.randrange(5)
        params = SamplingParams(
            n=choose.choice([1, 1, 2, 4]),
            seed=seed,
            temperature=choose.choice([0.0, 1.0]),
            max_tokens=choose.randint(1, self.longest),
            ignore_eos=True,
        )
        room = core.limits.max_model_len - len(prompt)
        try:
            core.add_request(request_id, prompt, params)
        except (InvalidRequest, QueueFull):
            return
        for index in range(params.n):
            tokens = continuation(prompt, params, seed=seed, index=index)[:room]
            self.expected[name, request_id, index], self.brought[name, request_id, index] = tokens, []

    def take(self, gained: dict[str, list[RequestDelta]]) -> None:
        for name, deltas in gained.items():
            for delta in deltas:
                key = name, delta.request_id, delta.index
                assert key not in self.reasons, "a delta after the last one"
                self.brought[key] += delta.token_ids
                if delta.finish_reason is not None:
                    self.reasons[key] = delta.finish_reason

    def check_all(self) -> None:
        assert self.reasons.keys() == self.expected.keys()
        for key, reason in self.reasons.items():
            found, whole = self.brought[key], self.expected[key]
            assert found == (whole[: len(found)] if reason == "abort" else whole), key
