"""Runners of devices for tests: on CPU over kernels in plain torch, with tapes for graphs; on CUDA the real thing."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from engine.config import EngineConfig
from engine.core import EngineCore, LoadedEngine
from engine.kernels import reference
from engine.llm import LLM
from engine.runner import LoadedModel, load_runner
from engine.runner.build import Machinery, build_device_runner
from engine.runner.device import DeviceRunner
from engine.runner.graphs import Recorder
from tests.engine.runner.tape import TapeRecorder


@dataclass
class FixedGauge:
    """A device whose steps and graphs need given amounts of memory."""

    total_bytes: int = 1 << 30
    free: list[int] = field(default_factory=lambda: [1 << 29])  #: one answer after the other; the last one stays
    used: int = 0
    peak: int = 0

    def free_bytes(self) -> int:
        return self.free.pop(0) if len(self.free) > 1 else self.free[0]

    def used_bytes(self) -> int:
        return self.used

    def reset_peak(self) -> None:
        pass

    def peak_bytes(self) -> int:
        return self.peak


def torch_machinery(recorder: Recorder | None = None, gauge: FixedGauge | None = None) -> Machinery:
    return Machinery(reference, "torch", recorder or TapeRecorder(), gauge or FixedGauge())


def settings_for(folder: Path, **settings: object) -> EngineConfig:
    defaults: dict[str, object] = {
        "page_tokens": 4,
        "kv_cache_bytes": 2 << 20,
        "max_running": 8,
        "max_batched_tokens": 64,
        "num_threads": 1,
        "operators": "torch",
    }
    return EngineConfig(str(folder), **{**defaults, **settings})  # type: ignore[arg-type]


def load_device(folder: Path, machinery: Machinery | None = None, **settings: object) -> LoadedModel:
    """On CPU."""
    build = partial(build_device_runner, machinery=machinery or torch_machinery())
    return load_runner(settings_for(folder, **{"device": "cpu", **settings}), build=build)


def device_runner(folder: Path, machinery: Machinery | None = None, **settings: object) -> DeviceRunner:
    runner = load_device(folder, machinery, **settings).runner
    assert isinstance(runner, DeviceRunner)
    return runner


def llm_on(loaded: LoadedModel, config: EngineConfig) -> LLM:
    def no_text(skip_special_tokens: bool, prompt: tuple[int, ...]) -> "NoText":
        return NoText()

    core = EngineCore(loaded.runner, config, no_text, has_queue_bound=False)
    return LLM.around(LoadedEngine(core, loaded.tokenizer, loaded.info))


class NoText:
    def push(self, token_ids: object) -> str:
        return ""

    def flush(self) -> str:
        return ""
