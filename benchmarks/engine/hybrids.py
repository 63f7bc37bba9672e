"""Recurrent, hybrid and expert models on CPU: prefill and decode beside transformers, in turns, and the share of its
limit that each of their operators reaches. Random weights.

python -m benchmarks.engine.hybrids [--shapes NAME,...] [--threads N] [--rounds N] [--quick] [--json FILE]

A row holds medians, and the time that its matrix products take at least on the machine. Transformers decodes one batch
of prompts of equal lengths with its cache; both sides include what surrounds the model: scheduler and sampling here,
the loop of `generate` there. Transformers has a process of its own: how an engine keeps freed memory in its process is
no setting of others.
"""

import argparse
import itertools
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import torch

from benchmarks.engine.hybrid_shapes import MAX_TOKENS, SHAPES
from benchmarks.engine.product_limits import Products, products_of
from benchmarks.operators.limits import Limits, measure_limits, sample_seconds
from benchmarks.operators.recurrent import hybrid_cases
from benchmarks.operators.rows import row_of
from benchmarks.peers.noise import NoiseMeter
from cli.bench import record
from engine.config import DType, EngineConfig
from engine.loaded_engine import load_engine
from engine.sampling_params import SamplingParams

RESULT = Path(__file__).parent.parent / "results" / "hybrids.json"
NAMES = ("mamba", "mamba2", "qwen3.5", "qwen3.5-0.8b", "jamba", "qwen3-moe", "granite-1b-a400m")
DTYPES: tuple[DType, ...] = ("float32", "bfloat16")
PREFILL_TOKENS, NUM_STREAMS, DECODE_PROMPT_TOKENS, DECODE_STEPS = 2048, 32, 32, 32
POOL_BYTES = 1 << 30
#: A side whose prompts have taken so long reads no more of them: transformers goes token by token through a Mamba's
#: prompt, in bfloat16 for a minute and longer.
PREFILL_BUDGET_S = 15.0


class Side(Protocol):
    """One of the two implementations, with a model loaded."""

    def prefill(self, prompt: list[int]) -> tuple[float, int]:
        """Seconds until the first token, and that token."""
        ...

    def decode(self, prompts: list[list[int]], num_steps: int) -> list[float]:
        """Seconds of each step in which all prompts have been read and every sequence gains one token."""
        ...


class Agon:
    """The engine's core, stepped here."""

    def __init__(self, folder: Path, dtype: DType, num_threads: int) -> None:
        config = EngineConfig(
            str(folder),
            dtype=dtype,
            device="cpu",
            num_threads=num_threads,
            kv_cache_bytes=POOL_BYTES,
            max_model_len=MAX_TOKENS,
            enable_prefix_caching=False,
        )
        self._loaded = load_engine(config, has_queue_bound=False)
        self.operators = self._loaded.info.operators

    def prefill(self, prompt: list[int]) -> tuple[float, int]:
        """As Side.prefill."""
        core = self._loaded.core
        started = time.perf_counter()
        core.add_request("prompt", prompt, SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True))
        deltas = core.step()
        while not deltas:
            deltas = core.step()
        return time.perf_counter() - started, deltas[0].token_ids[0]

    def decode(self, prompts: list[list[int]], num_steps: int) -> list[float]:
        """As Side.decode."""
        core = self._loaded.core
        params = SamplingParams(temperature=0.0, max_tokens=num_steps + 1, ignore_eos=True)
        for index, prompt in enumerate(prompts):
            core.add_request(str(index), prompt, params)
        num_first = 0
        while num_first < len(prompts):
            num_first += len(core.step())
        assert num_first == len(prompts), "all prompts fit into one step, so that none decodes before the others"
        return [_timed(core.step) for _ in range(num_steps)]

    def close(self) -> None:
        """Free the model."""
        self._loaded.core.close()


class Transformers:
    """The same checkpoint in transformers, driven by `generate`."""

    def __init__(self, folder: Path, dtype: DType, architecture: str) -> None:
        import transformers

        model_class: Any = getattr(transformers, architecture)
        self._model = model_class.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    def prefill(self, prompt: list[int]) -> tuple[float, int]:
        """As Side.prefill."""
        started = time.perf_counter()
        output, _ = self._generate([prompt], 1)
        return time.perf_counter() - started, int(output[0, -1])

    def decode(self, prompts: list[list[int]], num_steps: int) -> list[float]:
        """As Side.decode."""
        _, times = self._generate(prompts, num_steps + 1)
        return [after - before for before, after in itertools.pairwise(times)]

    def _generate(self, prompts: list[list[int]], num_tokens: int) -> tuple[torch.Tensor, list[float]]:
        """The sequences, and the time at which each of their new tokens was there."""
        from transformers import StoppingCriteriaList

        times: list[float] = []

        def note(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
            times.append(time.perf_counter())
            return torch.zeros(len(ids), dtype=torch.bool)

        ids = torch.tensor(prompts)
        output = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
            stopping_criteria=StoppingCriteriaList([note]),
        )
        return output, times


class Apart:
    """Transformers in a process of its own, which waits while the other side computes."""

    def __init__(self, folder: Path, dtype: DType, architecture: str, num_threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, folder, dtype, architecture, num_threads)
        self._process = context.Process(target=_answer, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def prefill(self, prompt: list[int]) -> tuple[float, int]:
        """As Side.prefill."""
        self._pipe.send(("prefill", (prompt,)))
        seconds, token = self._pipe.recv()
        return seconds, token

    def decode(self, prompts: list[list[int]], num_steps: int) -> list[float]:
        """As Side.decode."""
        self._pipe.send(("decode", (prompts, num_steps)))
        seconds: list[float] = self._pipe.recv()
        return seconds

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()


def _answer(pipe: Connection, folder: Path, dtype: DType, architecture: str, num_threads: int) -> None:
    """Of the process of Apart: answers until the pipe is closed."""
    torch.set_num_threads(num_threads)
    side = Transformers(folder, dtype, architecture)
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(side, name)(*arguments))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=",".join(NAMES), help=f"with commas, of {', '.join(SHAPES)}")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side; medians count")
    parser.add_argument("--quick", action="store_true", help="tiny shapes and one round: to see that everything runs")
    parser.add_argument("--json", type=Path, default=RESULT)
    chosen = parser.parse_args(arguments)
    names = chosen.shapes.split(",")
    if unknown := [name for name in names if name not in SHAPES]:
        parser.error(f"there is no shape {unknown[0]!r}")
    torch.set_num_threads(chosen.threads)
    rounds = 1 if chosen.quick else chosen.rounds
    settings = {"threads": chosen.threads, "rounds": rounds, "streams": NUM_STREAMS, "is_quick": chosen.quick}
    document = record.document("hybrids", settings, [])  # before: the commit that the run started with
    rows: list[dict[str, Any]] = []
    with NoiseMeter(os.getpid()) as meter, tempfile.TemporaryDirectory() as parent:
        for name in names:
            folder = SHAPES[name].make(Path(parent) / name, is_quick=chosen.quick)
            for dtype in DTYPES:
                for row in measure(name, folder, dtype, chosen.threads, rounds, is_quick=chosen.quick):
                    print({key: value for key, value in row.items() if key != "products"}, flush=True)
                    rows.append(row)
        limits, operators = measure_operators(chosen.threads, is_quick=chosen.quick)
    for row in rows:
        row["limit_ms"] = round(1000 * _limit_s(row, row.pop("products"), limits), 2)
    noise = asdict(meter.noise())
    record.write(
        chosen.json, {**document, "rows": rows, "operators": operators, "limits": asdict(limits), "noise": noise}
    )


def _limit_s(row: dict[str, Any], products: Products, limits: Limits) -> float:
    num_tokens: int = row["tokens"]
    if row["load"] == "prefill":
        seen = range(1, num_tokens + 1)
        return products.seconds(seen, seen[-1:], row["dtype"], limits)
    rows = num_tokens * [DECODE_PROMPT_TOKENS]
    return products.seconds(rows, rows, row["dtype"], limits)


def measure(
    name: str, folder: Path, dtype: DType, num_threads: int, rounds: int, *, is_quick: bool
) -> Iterator[dict[str, Any]]:
    """Two rows of one shape: prefill and decode. Both sides are warm before their turns begin."""
    agon = Agon(folder, dtype, num_threads)
    transformers = Apart(folder, dtype, SHAPES[name].architecture, num_threads)
    sides: dict[str, Side] = {"agon": agon, "transformers": transformers}
    num_tokens, num_steps = (64, 3) if is_quick else (PREFILL_TOKENS, DECODE_STEPS)
    vocab_size = SHAPES[name].vocab_size(is_quick=is_quick)
    prefills: dict[str, list[float]] = {side: [] for side in sides}
    decodes: dict[str, list[float]] = {side: [] for side in sides}
    num_compared = num_equal = 0
    for side in sides.values():
        side.decode(_prompts(2, DECODE_PROMPT_TOKENS, vocab_size, seed=0), 2)
    for turn in range(rounds):
        (prompt,) = _prompts(1, num_tokens, vocab_size, seed=1 + turn)
        prompts = _prompts(NUM_STREAMS, DECODE_PROMPT_TOKENS, vocab_size, seed=100 + turn)
        firsts = []
        for which, side in sides.items():
            if sum(prefills[which]) < PREFILL_BUDGET_S:
                seconds, token = side.prefill(prompt)
                prefills[which].append(seconds)
                firsts.append(token)
            decodes[which] += side.decode(prompts, num_steps)
        if len(firsts) == len(sides):
            num_compared += 1
            num_equal += len(set(firsts)) == 1
    agon.close()
    transformers.close()
    common = {"shape": name, "dtype": dtype, "operators": agon.operators, "products": products_of(folder)}
    yield {
        **common,
        "load": "prefill",
        "tokens": num_tokens,
        **_compared(prefills),
        "first_tokens_equal": f"{num_equal} of {num_compared}",
    }
    yield {**common, "load": "decode", "tokens": NUM_STREAMS, **_compared(decodes)}


def measure_operators(num_threads: int, *, is_quick: bool) -> tuple[Limits, list[dict[str, Any]]]:
    """The machine's limits, and a row for each operator of these models."""
    seconds = 0.01 if is_quick else 0.3
    with torch.inference_mode():
        limits = measure_limits(seconds, is_quick=is_quick)
        measured = [
            (case, sample_seconds(case.make(), seconds)) for case in hybrid_cases(num_threads, is_quick=is_quick)
        ]
        limits = limits.best_of(measure_limits(seconds, is_quick=is_quick))
    return limits, [row_of(case, times, limits) for case, times in measured]


def _compared(seconds: dict[str, list[float]]) -> dict[str, float]:
    medians = {side: statistics.median(values) for side, values in seconds.items()}
    return {
        **{f"{side}_ms": round(1000 * median, 2) for side, median in medians.items()},
        "times_faster": round(medians["transformers"] / medians["agon"], 2),
    }


def _prompts(count: int, num_tokens: int, vocab_size: int, *, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    prompts: list[list[int]] = torch.randint(3, vocab_size, (count, num_tokens), generator=generator).tolist()
    return prompts


def _timed(run: Any) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
