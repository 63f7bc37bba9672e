"""Runners of devices for tests: on CPU over kernels in plain torch, with tapes for graphs; on CUDA the real thing."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch

from engine.batch import ScheduledSequence
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.formats.selection import read_format
from engine.kernels import reference
from engine.kernels.operators import PLAIN_EXPERTS, ExpertOptions, ExpertsFunction, GroupedExperts, Operators, Routing
from engine.kernels.reference import state_kernels
from engine.kernels.state_kernels import StateKernels
from engine.kernels.torch_operators import TorchOperators
from engine.llm import LLM
from engine.loaded_engine import LoadedEngine
from engine.loader import Checkpoint, CheckpointWeights, read_config
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.runner import EagerRunner, LoadedModel, load_runner
from engine.runner.build import Builder, Machinery, Parts, build_device_runner
from engine.runner.device.device_runner import DeviceRunner
from engine.runner.device.graphs import GraphRecorder
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.runner.device.tape import TapeRecorder, opaque
from tests.engine.stepper import GREEDY, Running, Stepper, random_prompt

TinyModels = Callable[[str], TinyModel]
SLOTS = 17  #: graphs of 1, 2, 4, 8, 16 and 17 rows
PROMPTS = [
    random_prompt(index, length) for index, length in enumerate((3, 30, 5, 1, 41, 2, 9, 16, 4, 2, 3, 7, 1, 8, 4, 5, 1))
]


@dataclass
class FixedGauge:
    """A device whose steps and graphs need given amounts of memory."""

    total_bytes: int = 1 << 30
    free: list[int] = field(default_factory=lambda: [1 << 29])  #: one answer after the other; the last one stays
    used: list[int] = field(default_factory=lambda: [0])  #: likewise
    peak: int = 0

    def free_bytes(self) -> int:
        return _next(self.free)

    def used_bytes(self) -> int:
        return _next(self.used)

    def reset_peak(self) -> None:
        pass

    def peak_bytes(self) -> int:
        return self.peak


def _next(answers: list[int]) -> int:
    return answers.pop(0) if len(answers) > 1 else answers[0]


def torch_machinery(recorder: GraphRecorder | None = None, gauge: FixedGauge | None = None) -> Machinery:
    recorder = recorder or TapeRecorder()
    return Machinery(reference, "torch", lambda: recorder, gauge or FixedGauge())


def settings_for(folder: Path, **settings: object) -> EngineConfig:
    defaults: dict[str, object] = {
        "device": "cpu",
        "page_tokens": 4,
        "kv_cache_bytes": 2 << 20,
        "max_running": 8,
        "max_batched_tokens": 64,
        "num_threads": 1,
        "operators": "torch",
    }
    return EngineConfig(str(folder), **{**defaults, **settings})  # type: ignore[arg-type]


def opaque_kernels(module: ModuleType) -> StateKernels:
    """The kernels of a module, which a tape takes as single calls."""
    kernels = {name: opaque(getattr(module, name)) for name in module.__all__ if name != "is_capturable"}
    return SimpleNamespace(is_capturable=True, **kernels)


class TorchWithStateKernels(TorchOperators):
    """Torch operators, and beside them kernels for recurrent states, which a tape takes as single calls."""

    @property
    def state_kernels(self) -> StateKernels:
        return opaque_kernels(state_kernels)


class TorchWithGroupedExperts(TorchWithStateKernels):
    """Torch operators whose experts are chosen as on a device."""

    @property
    def grouped_experts(self) -> GroupedExperts:  # type: ignore[override]
        def bind(
            gate_up: torch.Tensor, down: torch.Tensor, routing: Routing, options: ExpertOptions = PLAIN_EXPERTS
        ) -> ExpertsFunction:
            def mix(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
                chosen, weights = reference.choose_experts(scores, routing)
                return reference.grouped_experts(x, chosen, weights, gate_up, down, options)

            return mix

        return bind


def with_operators(build: Builder, operators: Operators) -> Builder:
    """The same for the same model made of other operators."""

    def rebuilt(parts: Parts) -> EagerRunner | DeviceRunner:
        folder = Path(parts.config.model)
        settings = ConfigReader(read_config(folder))
        weights = CheckpointWeights(
            Checkpoint(folder),
            dtype=parts.dtype,
            device=parts.device,
            operators=operators,
            group=parts.group,
            quantised_by=read_format(settings),
        )
        with torch.inference_mode():
            model = architecture_of(settings).build(settings, weights)
        return build(replace(parts, model=model, operators=operators))

    return rebuilt


def with_kv_dtype(build: Builder, kv_dtype: torch.dtype | None) -> Builder:
    """The same with keys and values in that type, whatever the device is said to compute. None: that of the model."""
    return lambda parts: build(parts if kv_dtype is None else replace(parts, kv_dtype=kv_dtype))


def load_device(
    folder: Path, machinery: Machinery | None = None, operators: Operators | None = None, /, **settings: object
) -> LoadedModel:
    """On CPU. operators: torch's, unless stated. A tape does not see what C++ operators do, and would repeat half of a
    step: those it refuses."""
    assert settings.get("operators", "torch") == "torch" or settings.get("device") == "cuda"
    build: Builder = partial(build_device_runner, machinery=machinery or torch_machinery())
    if operators is not None:
        build = with_operators(build, operators)
    return load_runner(settings_for(folder, **settings), build=build)


def device_runner(
    folder: Path, machinery: Machinery | None = None, operators: Operators | None = None, /, **settings: object
) -> DeviceRunner:
    """Without an engine, and so without a prefix cache unless a test wants one."""
    runner = load_device(folder, machinery, operators, **{"enable_prefix_caching": False, **settings}).runner
    assert isinstance(runner, DeviceRunner)
    return runner


def llm_on(loaded: LoadedModel, config: EngineConfig) -> LLM:
    def no_text(skip_special_tokens: bool, shown: tuple[str, ...], prompt: tuple[int, ...]) -> "NoText":
        return NoText()

    core = EngineCore(loaded.runner, config, no_text, has_queue_bound=False)
    return LLM.around(LoadedEngine(core, loaded.tokenizer, loaded.info))


class NoText:
    def push(self, token_ids: object) -> str:
        return ""

    def flush(self) -> str:
        return ""


def eager_runner(folder: Path) -> EagerRunner:
    runner = load_runner(settings_for(folder, max_running=SLOTS)).runner
    assert isinstance(runner, EagerRunner)
    return runner


def in_random_company(
    runner: EagerRunner | DeviceRunner, params: SamplingParams, num_tokens: int = 8, chunk: int = 24
) -> list[list[int]]:
    """Every prompt's continuation; the sequences of a step are drawn anew each time, so batches have every size."""
    chosen = random.Random(7)
    stepper = Stepper(runner, chunk=chunk)
    running = [Running(slot, prompt, params, seed=slot) for slot, prompt in enumerate(PROMPTS)]
    while any(sequence.num_computed < len(sequence.prompt) for sequence in running):
        stepper.step(chosen.sample(running, chosen.randint(1, len(running))))
    stepper.step(running)
    while unfinished := [sequence for sequence in running if len(sequence.drawn) < num_tokens]:
        stepper.step(chosen.sample(unfinished, chosen.randint(1, len(unfinished))))
    return [sequence.output[:num_tokens] for sequence in running]


def share(slot: int, tokens: list[int], start: int = 0, **changes: object) -> ScheduledSequence:
    return replace(ScheduledSequence(slot, slot, tuple(tokens), start, 1, GREEDY, (0,), 0), **changes)  # type: ignore[arg-type]
