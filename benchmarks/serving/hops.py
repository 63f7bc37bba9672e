"""What each hop costs: the same requests to the engine in this process, to a worker, and to a controller before one.

All three are loaded at once and take turns. Many streams for throughput, single ones for the time to first token.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparison.arena import running_arena
from benchmarks.serving.worker import served_model
from cli.bench_serving import Load, run_closed
from cli.bench_workloads import TextWork, random_texts
from cli.openai_client import connect
from engine import LLM, AsyncEngine, EngineConfig, SamplingParams

#: With the tokenizer of benchmarks/models.py and its chat template: about 128 tokens.
PROMPT_WORDS = 22
OUTPUT_TOKENS = 64


def measure_hops(
    model: Path, folder: Path, *, threads: int, streams: int, singles: int, rounds: int, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One row for each of engine, worker and controller."""
    options = ("--threads", str(threads), "--no-prefix-caching")
    arena_settings = {"AGON_PREFIX_CACHING": "false"}
    llm = LLM(str(model), device="cpu", num_threads=threads, enable_prefix_caching=False)
    with (
        served_model(model, *options) as worker,
        running_arena(
            folder, [f"{model.name}={model}"], "--threads-per-worker", str(threads), settings=arena_settings
        ) as arena,
    ):
        seen: dict[str, dict[str, list[float]]] = {}
        for number in range(rounds + 1):  # round 0 warms up
            many = random_texts(streams, PROMPT_WORDS, OUTPUT_TOKENS, seed=number)
            few = random_texts(singles, PROMPT_WORDS, 2, seed=1000 + number)
            config = EngineConfig(str(model), device="cpu", num_threads=threads, enable_prefix_caching=False)
            results = {
                "engine": (_engine_throughput(llm, many), asyncio.run(_engine_first_tokens(config, few))),
                "worker": asyncio.run(_served(worker.url, model.name, many, few)),
                "controller": asyncio.run(_served(arena.url, model.name, many, few)),
            }
            for hop, (throughput, first_ms) in results.items():
                progress(f"round {number} of {rounds}: {hop} {throughput:.1f} tokens/s, {first_ms:.2f} ms")
                if number:
                    kept = seen.setdefault(hop, {"output_tokens_per_s": [], "ttft_ms_p50": []})
                    kept["output_tokens_per_s"].append(throughput)
                    kept["ttft_ms_p50"].append(first_ms)
    llm.close()
    engine = statistics.median(seen["engine"]["output_tokens_per_s"])
    rows = []
    before = statistics.median(seen["engine"]["ttft_ms_p50"])
    for hop, kept in seen.items():
        throughput = statistics.median(kept["output_tokens_per_s"])
        first_ms = statistics.median(kept["ttft_ms_p50"])
        rows.append(
            {
                "hop": hop,
                "streams": streams,
                "output_tokens_per_s": round(throughput, 1),
                "of_the_engine": round(throughput / engine, 4),
                "ttft_ms_p50": round(first_ms, 2),
                "added_ttft_ms": round(first_ms - before, 2),
                "rounds": {name: [round(value, 2) for value in values] for name, values in kept.items()},
            }
        )
        before = first_ms
    return rows


def _engine_throughput(llm: LLM, items: Sequence[TextWork]) -> float:
    prompts = [llm.tokenizer.render_chat([{"role": "user", "content": item.text}]) for item in items]
    params = SamplingParams(temperature=0.0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
    started = time.perf_counter()
    llm.generate(prompts, params)
    return len(items) * OUTPUT_TOKENS / (time.perf_counter() - started)


async def _engine_first_tokens(config: EngineConfig, items: Sequence[TextWork]) -> float:
    """Median milliseconds, one request at a time."""
    engine = await AsyncEngine.from_config(config)
    try:
        times = []
        for item in items:
            started = time.perf_counter()
            prompt = engine.tokenizer.render_chat([{"role": "user", "content": item.text}])
            async with engine.generate(
                prompt, SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
            ) as stream:
                async for _ in stream:
                    times.append(time.perf_counter() - started)
                    break
        return 1e3 * statistics.median(times)
    finally:
        await engine.shutdown()


async def _served(url: str, model: str, many: Sequence[TextWork], few: Sequence[TextWork]) -> tuple[float, float]:
    async with connect(url, None) as client:
        together = await run_closed(client, Load(model, many), len(many), lambda: None)
        alone = await run_closed(client, Load(model, few), 1, lambda: None)
    for row in (together, alone):
        if row["failed"]:
            raise RuntimeError(row["first_error"])
    return together["output_tokens_per_s"], alone["ttft_ms_p50"]
