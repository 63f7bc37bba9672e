"""What LoRA adapters cost: one answer of an adapter, a battle of two adapters in one batch, and the same of the base.

python -m benchmarks.engine.adapters [--model NAME] [--rank R] [--turns N] [--tokens N] [--threads N] [--json FILE]

Random weights of real shapes. Each turn measures every case once, in one process; medians of turns count. The processor
time of a step, of all threads, stands beside its time: with one thread it is what a quiet machine would take.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.models import CONFIGS, write_model
from cli.bench import record
from engine.adapters.random_adapter import write_random_adapter
from engine.config import EngineConfig
from engine.llm import LLM
from engine.sampling_params import SamplingParams

RESULT = Path(__file__).parent.parent / "results" / "adapters.json"
PROMPT_TOKENS = 64
#: name -> the adapter of each sequence of the batch; "": none
CASES: dict[str, tuple[str, ...]] = {
    "base": ("",),
    "one adapter": ("a0",),
    "two of the base": ("", ""),
    "two of one adapter": ("a0", "a0"),
    "battle of two adapters": ("a0", "a1"),
    "eight of the base": ("",) * 8,
    "eight adapters": tuple(f"a{index}" for index in range(8)),
}


def decode_seconds(llm: LLM, adapters: Sequence[str], seed: int, num_tokens: int) -> tuple[float, float]:
    """Seconds of a step, and of the processor, from the first token of all sequences to the last."""
    core = llm._core
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    for index, name in enumerate(adapters):
        prompt = [3 + (seed * 7919 + index * 104729 + place * 31) % 4096 for place in range(PROMPT_TOKENS)]
        core.add_request(f"{seed}-{index}", prompt, params, adapter=name)
    begun: set[str] = set()
    while len(begun) < len(adapters):
        begun |= {delta.request_id for delta in core.step() if delta.token_ids}
    started, started_cpu = time.perf_counter(), time.process_time()
    num_steps = 0
    while not core.is_idle:
        core.step()
        num_steps += 1
    return (time.perf_counter() - started) / num_steps, (time.process_time() - started_cpu) / num_steps


def measure(llm: LLM, turns: int, num_tokens: int) -> list[dict[str, Any]]:
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for adapters in CASES.values():
        decode_seconds(llm, adapters, seed=0, num_tokens=4)  # to warm up
    for turn in range(1, turns + 1):
        for name, adapters in CASES.items():
            seconds[name].append(decode_seconds(llm, adapters, turn, num_tokens))
    rows = []
    for name, adapters in CASES.items():
        step_s, cpu_s = (statistics.median(each) for each in zip(*seconds[name], strict=True))
        rows.append(
            {
                "case": name,
                "batch": len(adapters),
                "step_ms": 1e3 * step_s,
                "cpu_ms": 1e3 * cpu_s,
                "tokens_per_s": len(adapters) / step_s,
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smol-135m", choices=list(CONFIGS))
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--json", type=Path, default=RESULT)
    chosen = parser.parse_args(arguments)
    settings = {name: getattr(chosen, name) for name in ("model", "dtype", "rank", "threads", "turns", "tokens")}
    document = record.document("adapters", settings, [])
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, chosen.model)
        write_model(folder, CONFIGS[chosen.model])
        config = EngineConfig(
            str(folder),
            load_format="dummy",
            dtype=chosen.dtype,
            device="cpu",
            kv_cache_bytes=2**28,
            max_model_len=512,
            num_threads=chosen.threads,
            enable_prefix_caching=False,
            max_adapters=8,
        )
        with LLM.from_config(config) as llm:
            for index in range(8):
                adapter = Path(root, f"a{index}")
                write_random_adapter(str(folder), adapter, rank=chosen.rank, seed=index)
                llm.add_adapter(adapter.name, adapter)
            rows = measure(llm, chosen.turns, chosen.tokens)
    for row in rows:
        print(
            f"{row['case']:24} {row['step_ms']:7.2f} ms a step, {row['cpu_ms']:7.2f} of the processor, "
            f"{row['tokens_per_s']:7.1f} tokens/s"
        )
    ratios = {}
    for kind in ("step_ms", "cpu_ms"):
        by_case = {row["case"]: row[kind] for row in rows}
        ratios[kind] = by_case["battle of two adapters"] / by_case["one adapter"]
    print(
        "a battle of two adapters takes {step_ms:.2f} x the time of one side alone, {cpu_ms:.2f} x the "
        "processor's".format(**ratios)
    )
    record.write(chosen.json, {**document, "rows": rows, "battle_to_one_side": ratios})


if __name__ == "__main__":
    main()
