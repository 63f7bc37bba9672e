"""Requests for an engine on an idle device, and what each of its steps costs the host."""

import itertools
import json
import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.gpu.shapes import CONFIGS, QWEN3_600M
from benchmarks.models import write_model
from benchmarks.steps.idle_device import IdleDevice, Launches
from engine.batch import StepOutput, StepPlan
from engine.config import EngineConfig, KVDType
from engine.core import EngineCore
from engine.loaded_engine import LoadedEngine
from engine.runner import load_runner
from engine.runner.runner import Runner
from engine.sampling_params import SamplingParams
from engine.text.tokenizer import IncrementalDetokenizer

Kind = Literal["decode", "mixed"]
#: The layers and head norms of Qwen3-0.6B, with few channels and tokens, since nothing is computed.
_FEW_CHANNELS = {
    "vocab_size": 4096,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}
MODEL: dict[str, Any] = {**QWEN3_600M, **_FEW_CHANNELS}
#: Likewise; whose graphs have as many nodes as those of the models of these names.
MODELS = {"qwen3-0.6b": MODEL, "llama-3.1-8b": {**CONFIGS["llama-3.1-8b"], **_FEW_CHANNELS}}
LAYERS: int = MODEL["num_hidden_layers"]
_LONG = {"max_tokens": 4096, "ignore_eos": True, "skip_special_tokens": False}
PARAMS = {
    "greedy": SamplingParams(temperature=0.0, **_LONG),  # type: ignore[arg-type]
    "sampled": SamplingParams(temperature=0.8, top_k=50, top_p=0.95, **_LONG),  # type: ignore[arg-type]
}
#: Tokens of the prompt in a mixed step: a short question.
PROMPT_TOKENS = 64
#: Of the device, for each step beside a busy thread: of a small model.
DEVICE_S = 0.002
_WARM_STEPS = 12


@dataclass
class TimedRunner:
    """A Runner over another one: measures it, and lets each step take `device_s` of a device that computes one step
    after the other."""

    inner: Runner
    device_s: float = 0.0
    runner_s: float = 0.0  #: processor time of launch and collect
    _ends: deque[float] = field(default_factory=deque)  # of the steps in flight
    _last_end: float = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def launch(self, plan: StepPlan) -> None:
        started = time.thread_time()
        self.inner.launch(plan)
        self.runner_s += time.thread_time() - started
        self._last_end = max(time.perf_counter(), self._last_end) + self.device_s
        self._ends.append(self._last_end)

    def collect(self) -> StepOutput:
        remaining_s = self._ends.popleft() - time.perf_counter()
        if self.device_s and remaining_s > 0:
            time.sleep(remaining_s)  # gives up the interpreter's lock, as waiting for an event does
        started = time.thread_time()
        output = self.inner.collect()
        self.runner_s += time.thread_time() - started
        return output


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step on the host. Processor time is that of the engine's thread: other processes do not count."""

    whole: float  #: processor time of EngineCore.step
    runner: float  #: of launch and collect, in it
    passed: float  #: until the step returned, by the clock


def write_config(
    folder: Path, max_running: int, model: Mapping[str, Any] = MODEL, kv_dtype: KVDType = "auto"
) -> EngineConfig:
    """The configuration of an engine on an idle device. folder: where config and tokenizer of the model are written."""
    write_model(folder, dict(model))
    return EngineConfig(
        str(folder),
        device="cpu",
        dtype="bfloat16",
        load_format="dummy",
        operators="torch",
        max_model_len=model["max_position_embeddings"],
        kv_dtype=kv_dtype,
        max_batched_tokens=2048,
        max_running=max_running,
        kv_cache_bytes=2 << 30,  # never touched
        num_threads=1,
        overlap=True,
    )


def load_idle(config: EngineConfig, device: IdleDevice, device_s: float = 0.0) -> tuple[LoadedEngine, TimedRunner]:
    """An engine without a queue bound on an idle device. device_s: what a step takes there."""
    loaded = load_runner(config, build=device.build)
    tokenizer = loaded.tokenizer
    runner = TimedRunner(loaded.runner, device_s)
    core = EngineCore(
        runner,
        config,
        lambda skips, shown, prompt: IncrementalDetokenizer(tokenizer, skips, prompt),
        has_queue_bound=False,
    )
    return LoadedEngine(core, tokenizer, loaded.info), runner


class Engine:
    """An engine core on an idle device."""

    def __init__(
        self,
        folder: Path,
        device: IdleDevice,
        max_running: int,
        model: Mapping[str, Any] = MODEL,
        kv_dtype: KVDType = "auto",
    ) -> None:
        """folder: where config and tokenizer of the model are written."""
        self._device = device
        self._vocab_size: int = model["vocab_size"]
        loaded, self.runner = load_idle(write_config(folder, max_running, model, kv_dtype), device)
        self._core = loaded.core
        self._ids = itertools.count()

    def measure(self, kind: Kind, rows: int, sampling: str, num_steps: int) -> list[StepTime]:
        """num_steps steps in which `rows` sequences compute one token each; in a mixed step, one of these rows computes
        a prompt of PROMPT_TOKENS tokens instead."""
        with self._loaded(kind, rows, PARAMS[sampling]):
            return [self._step(kind, PARAMS[sampling]) for _ in range(num_steps)]

    def count(self, kind: Kind, rows: int) -> Launches:
        """What the host launches for one such step."""
        with self._loaded(kind, rows, PARAMS["sampled"]), self._device.counting() as launches:
            self._step(kind, PARAMS["sampled"])
        return launches

    @contextmanager
    def _loaded(self, kind: Kind, rows: int, params: SamplingParams) -> Iterator[None]:
        num_decodes = rows - (kind == "mixed")
        for _ in range(num_decodes):
            self._add(params, 8 + next(self._ids) % 16)  # so that pages become full in different steps
        while self._core.stats().waiting or self._core.stats().running_sequences < num_decodes:
            self._core.step()
        for _ in range(_WARM_STEPS):
            self._step(kind, params)
        yield
        self._core.abort_all()
        while not self._core.is_idle:
            self._core.step()

    def _step(self, kind: Kind, params: SamplingParams) -> StepTime:
        if kind == "mixed":
            self._add(params, PROMPT_TOKENS, max_tokens=1)
        runner_s = self.runner.runner_s
        clock, processor = time.perf_counter(), time.thread_time()
        self._core.step()
        whole, passed = time.thread_time() - processor, time.perf_counter() - clock
        return StepTime(whole, self.runner.runner_s - runner_s, passed)

    def _add(self, params: SamplingParams, num_tokens: int, max_tokens: int | None = None) -> None:
        number = next(self._ids)
        prompt = random.Random(number).choices(range(300, self._vocab_size), k=num_tokens)
        chosen = params if max_tokens is None else replace(params, max_tokens=max_tokens)
        self._core.add_request(str(number), prompt, chosen)


@contextmanager
def busy_thread() -> Iterator[list[int]]:
    """A second thread that always has work, as the event loop of a server with many clients: writes and reads events of
    streams. Yields a list whose only element is the number of events so far."""
    is_over, count = threading.Event(), [0]
    event = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": "a"}}],
    }

    def work() -> None:
        while not is_over.is_set():
            line = f"data: {json.dumps(event)}\n\n".encode()
            json.loads(line[6:])
            count[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield count
    finally:
        is_over.set()
        thread.join()
