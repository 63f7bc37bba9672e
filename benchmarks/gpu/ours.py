"""The whole engine (scheduler, pages, runner, text): decodes of a batch, their kernels, one prompt, a load at once.

Prefix caching is off, because rounds repeat prompts. Weights are random, so answers do not stop at an end of sequence.
"""

import gc
import itertools
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from benchmarks.gpu.plan import Plan
from benchmarks.gpu.profile import profile_steps
from benchmarks.models import write_model
from cli.bench.workloads import FIRST_ID, Work
from engine.config import EngineConfig
from engine.llm import LLM
from engine.loaded_engine import load_engine
from engine.sampling_params import SamplingParams

_WARM_STEPS = 4


class Agon:
    def __init__(self, folder: Path, config: dict[str, Any], plan: Plan, device: str) -> None:
        """folder: where config and tokenizer are written."""
        write_model(folder, config)
        self._engine = load_engine(
            EngineConfig(
                str(folder),
                device=device,
                load_format="dummy",
                operators=plan.operators,
                enforce_eager=plan.enforce_eager,
                max_model_len=plan.max_model_len,
                max_batched_tokens=plan.max_batched_tokens,
                max_running=plan.max_running,
                max_graph_batch=plan.max_running,
                enable_prefix_caching=False,
                kv_cache_bytes=None if device == "cuda" else 16 << 20,
            ),
            has_queue_bound=False,
        )
        self._core = self._engine.core
        self._device = device
        self._vocab_size = config["vocab_size"]
        self._ids = itertools.count()

    @property
    def operators(self) -> str:
        return self._engine.info.operators

    @property
    def pool_bytes(self) -> int:
        """Room for keys and values."""
        return self._core.stats().kv_bytes_total

    def decode(self, batch: int, context: int, steps: int) -> dict[str, Any]:
        """Tokens per second while all sequences decode; `context` is what they have on average in the timed steps."""
        with self._decoding(batch, context, steps) as lengths:
            before = sum(lengths.values())
            started = time.perf_counter()
            for _ in range(steps):
                self._step(lengths)
            seconds = time.perf_counter() - started
            after = sum(lengths.values())
        return {
            "tokens_per_s": round((after - before) / seconds, 1),
            "step_ms": round(1e3 * seconds / steps, 4),
            "context": round((before + after) / 2 / batch, 1),
        }

    def profile(self, batch: int, context: int, steps: int) -> dict[str, Any]:
        """The kernels of one decode step, on average over so many; `context` as in `decode`."""
        with self._decoding(batch, context, steps) as lengths:
            before = sum(lengths.values())
            kernels = profile_steps(lambda: self._step(lengths), steps, self._device)
            after = sum(lengths.values())
        return {
            "steps": steps,
            "context": round((before + after) / 2 / batch, 1),
            "kernels": [asdict(kernel) for kernel in kernels],
        }

    @contextmanager
    def _decoding(self, batch: int, context: int, steps: int) -> Iterator[dict[str, int]]:
        """So many sequences that all decode for that many steps at least, by their lengths. Afterwards nothing runs."""
        # The first sequences decode while the prompts of later ones are computed.
        longest = steps + batch + 2 * _WARM_STEPS + 16
        lengths = dict.fromkeys((f"decode-{next(self._ids)}" for _ in range(batch)), context - steps // 2)
        for request_id, length in lengths.items():
            self._add(request_id, length, longest)
        answered: set[str] = set()
        while len(answered) < batch:
            answered |= self._step(lengths)
        for _ in range(_WARM_STEPS):
            self._step(lengths)
        try:
            yield lengths
        finally:
            self._core.abort_all()
            self._drain()

    def prefill(self, num_tokens: int, repeats: int) -> dict[str, Any]:
        """One prompt until its first token is known; the median counts, after one round that does not."""
        times = []
        for _ in range(repeats + 1):
            self._add(f"prefill-{next(self._ids)}", num_tokens, 1)
            started = time.perf_counter()
            self._drain()
            times.append(time.perf_counter() - started)
        seconds = statistics.median(times[1:])
        return {"tokens_per_s": round(num_tokens / seconds, 1), "ms": round(1e3 * seconds, 3)}

    def serve(self, work: Sequence[Work], temperature: float) -> dict[str, Any]:
        """All requests at once; a round of two tokens each warms up."""
        llm = LLM.around(self._engine)
        prompts = [list(item.ids) for item in work]
        warm = SamplingParams(temperature=temperature, max_tokens=2, ignore_eos=True)
        llm.generate(prompts, warm)
        params = [SamplingParams(temperature=temperature, max_tokens=item.out, ignore_eos=True) for item in work]
        started = time.perf_counter()
        llm.generate(prompts, params)
        return rates(work, time.perf_counter() - started)

    def _add(self, request_id: str, num_tokens: int, max_tokens: int) -> None:
        generator = random.Random(request_id)
        prompt = generator.choices(range(FIRST_ID, self._vocab_size), k=num_tokens)
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        self._core.add_request(request_id, prompt, params)

    def _step(self, lengths: dict[str, int]) -> set[str]:
        """Run a step and add the new tokens to the lengths of the requests; returns the requests that got any."""
        deltas = self._core.step()
        for delta in deltas:
            lengths[delta.request_id] += len(delta.token_ids)
        return {delta.request_id for delta in deltas if delta.token_ids}

    def _drain(self) -> None:
        while not self._core.is_idle:
            self._core.step()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._core.close()
        release()


def release() -> None:
    """Return the memory of closed models from torch's cache to the device."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def rates(work: Sequence[Work], seconds: float) -> dict[str, Any]:
    prompt_tokens, output_tokens = sum(len(item.ids) for item in work), sum(item.out for item in work)
    return {
        "requests": len(work),
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "seconds": round(seconds, 3),
        "tokens_per_s": round(output_tokens / seconds, 1),
        "total_tokens_per_s": round((prompt_tokens + output_tokens) / seconds, 1),
    }
