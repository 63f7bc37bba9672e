"""Where the time of a decode step goes: the model itself, and everything around it.

A real core serves real requests; its parts are wrapped with stopwatches. Everything except the model's forward pass and
its output head is overhead: scheduler, page memory, preparing the step, sampling, and the rest of Python (texts,
deltas).
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from cli.bench.workloads import random_work
from engine.config import EngineConfig
from engine.loaded_engine import load_engine
from engine.sampling_params import SamplingParams


class Stopwatch:
    """Seconds by name; a call within a call of the same name counts once."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._open: set[str] = set()

    def wrap(self, owner: Any, method: str, name: str) -> None:
        """Replace a method of an object by one that is timed."""
        run = getattr(owner, method)

        def timed(*arguments: Any, **named: Any) -> Any:
            if name in self._open:
                return run(*arguments, **named)
            self._open.add(name)
            started = time.perf_counter()
            try:
                return run(*arguments, **named)
            finally:
                self.seconds[name] += time.perf_counter() - started
                self.calls[name] += 1
                self._open.discard(name)

        setattr(owner, method, timed)

    def reset(self) -> None:
        self.seconds.clear()
        self.calls.clear()


def measure_shares(config: EngineConfig, *, batch: int, prompt_tokens: int, steps: int) -> dict[str, Any]:
    """Milliseconds and shares of a step in which `batch` sequences decode."""
    loaded = load_engine(config, has_queue_bound=False)
    core = loaded.core
    runner, scheduler, cache = core._runner, core._scheduler, core._cache
    model = runner._model  # type: ignore[attr-defined]  # the protocol hides it; a benchmark may look
    params = SamplingParams(temperature=0.0, max_tokens=steps + 16, ignore_eos=True)
    for index, item in enumerate(random_work(batch, prompt_tokens, 1, loaded.core.limits.vocab_size)):
        core.add_request(str(index), item.ids, params)
    while any(not delta_counts for delta_counts in _outputs(core)):
        core.step()
    core.step()
    watch = Stopwatch()
    watch.wrap(core, "step", "step")
    watch.wrap(runner, "launch", "runner")
    watch.wrap(runner, "collect", "runner")
    watch.wrap(runner, "_sample", "sample and head")
    watch.wrap(model, "forward", "forward")
    watch.wrap(model, "logits", "head")
    watch.wrap(scheduler, "schedule", "scheduler and memory")
    watch.wrap(scheduler, "commit", "scheduler and memory")
    for method in _public_methods(cache):
        watch.wrap(cache, method, "memory")
    for _ in range(steps):
        core.step()
    assert watch.calls["forward"] == watch.calls["head"] == steps, "the runner no longer calls forward and logits"
    seconds = watch.seconds
    parts = {
        "model": seconds["forward"] + seconds["head"],
        "sampling": seconds["sample and head"] - seconds["head"],
        "preparing the step": seconds["runner"] - seconds["sample and head"] - seconds["forward"],
        "scheduler": seconds["scheduler and memory"] - seconds["memory"],
        "memory": seconds["memory"],
        "texts and deltas": seconds["step"] - seconds["runner"] - seconds["scheduler and memory"],
    }
    whole = seconds["step"]
    core.abort_all()
    core.step()  # which is none of those measured
    core.close()
    return {
        "operators": loaded.info.operators,
        "batch": batch,
        "prompt_tokens": prompt_tokens,
        "steps": steps,
        "step_ms": round(1e3 * whole / steps, 3),
        "parts_ms": {name: round(1e3 * part / steps, 4) for name, part in parts.items()},
        "shares": {name: round(part / whole, 5) for name, part in parts.items()},
        "overhead_share": round(1 - parts["model"] / whole, 5),
    }


def _outputs(core: Any) -> list[int]:
    """Output tokens of every open sequence."""
    return [sequence.num_output_tokens for request in core._requests.all() for sequence in request.sequences]


def _public_methods(owner: Any) -> list[str]:
    """Methods, not properties, of the object's class."""
    kind = type(owner)
    is_method: Callable[[str], bool] = lambda name: callable(getattr(kind, name))  # noqa: E731
    return [name for name in dir(kind) if not name.startswith("_") and is_method(name)]
