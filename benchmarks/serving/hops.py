"""What each hop costs: the same requests go to the engine in this process, to a worker, and to the controller in front
of it.

All are loaded at once and take turns. Many streams for throughput, single ones for the time to first token. Worker and
controller lead to the same process. The time that they add to the first token is the client's wait minus the time that
the worker itself measured from accepting the request to its first token. The engine's own time for one prompt varies by
some percent, which is more than a hop.
"""

import asyncio
import io
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.comparison.arena import running_arena
from cli.bench.serving import Load, run_closed
from cli.bench.workloads import TextWork, random_texts
from cli.openai_client import connect
from engine import LLM, AsyncEngine, EngineConfig, SamplingParams

#: Before each single request. OpenMP's threads wait for more work in a busy loop for some ms after a step: the threads
#: of the process measured before must not take a core from the one that is measured now.
PAUSE_S = 0.1
#: With the tokenizer of benchmarks/models.py and its chat template: about 128 tokens.
PROMPT_WORDS = 22
OUTPUT_TOKENS = 64
LOG_PATIENCE_S = 10.0
API_KEY = "benchmark"  #: opens the arena's worker to us


HOPS = ("engine", "worker", "controller")
Progress = Callable[[str], None]


def measure_hops(
    model: Path, folder: Path, *, threads: int, streams: int, singles: int, rounds: int, progress: Progress
) -> list[dict[str, Any]]:
    """One row for each of engine, worker and controller."""
    config = EngineConfig(str(model), device="cpu", num_threads=threads, enable_prefix_caching=False)
    options = ("--threads-per-worker", str(threads))
    settings = {"AGON_PREFIX_CACHING": "false"}
    with running_arena(folder, [f"{model.name}={model}"], *options, settings=settings, api_key=API_KEY) as arena:
        urls = {"worker": arena.worker_url, "controller": arena.url}
        throughput = asyncio.run(_throughput(config, urls, model.name, streams, rounds, progress))
        with (folder / "logs" / f"worker-{model.name}.log").open() as lines:
            log, count = AnswerLog(lines), singles * rounds
            first_ms, outside_ms = asyncio.run(_first_tokens(config, urls, model.name, log, count, progress))
    alone = statistics.median(throughput["engine"])
    rows = []
    for number, hop in enumerate(HOPS):
        tokens_per_s = statistics.median(throughput[hop])
        pairs = zip(outside_ms[HOPS[max(0, number - 1)]], outside_ms[hop], strict=True)  # of one prompt
        added_ms = sorted(after - before for before, after in pairs)
        rows.append(
            {
                "hop": hop,
                "streams": streams,
                "output_tokens_per_s": round(tokens_per_s, 1),
                "of_the_engine": round(tokens_per_s / alone, 4),
                "ttft_ms_p50": round(statistics.median(first_ms[hop]), 2),
                "added_ttft_ms": round(statistics.median(added_ms), 2),
                "added_ttft_ms_95": [round(bound, 2) for bound in median_interval(added_ms)],
                "output_tokens_per_s_all": [round(value, 1) for value in throughput[hop]],
            }
        )
    return rows


class AnswerLog:
    """A worker's log, followed from its present end. Owns the read position, not the file."""

    def __init__(self, lines: TextIO) -> None:
        self._lines = lines
        self.skip()

    def skip(self) -> None:
        """Skip the answers logged so far."""
        self._lines.seek(0, io.SEEK_END)

    async def first_token_ms(self) -> float:
        """Milliseconds that the worker measured for the next answer, from accepting the request to its first token.

        Raises TimeoutError."""
        line = ""
        async with asyncio.timeout(LOG_PATIENCE_S):
            while True:
                line += self._lines.readline()
                if not line.endswith("\n"):
                    await asyncio.sleep(0.002)
                elif (record := json.loads(line))["event"] == "answer_ended":
                    return 1e3 * float(record["ttft_s"])
                else:
                    line = ""


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with 95 % confidence, whatever the distribution: the order statistics on both sides of the
    middle that a fair coin keeps apart (normal approximation of the binomial distribution)."""
    middle, spread = (len(ordered) - 1) / 2, 1.96 * math.sqrt(len(ordered)) / 2
    low, high = math.floor(middle - spread), math.ceil(middle + spread)
    return ordered[max(0, low)], ordered[min(len(ordered) - 1, high)]


async def _throughput(
    config: EngineConfig, urls: dict[str, str], model: str, streams: int, rounds: int, progress: Progress
) -> dict[str, list[float]]:
    """Output tokens per second of every round by hop. Round 0 warms up."""
    seen: dict[str, list[float]] = {hop: [] for hop in HOPS}
    with LLM(config.model, device="cpu", num_threads=config.num_threads, enable_prefix_caching=False) as llm:
        for number in range(rounds + 1):
            items = random_texts(streams, PROMPT_WORDS, OUTPUT_TOKENS, seed=number)
            results = {"engine": _engine_throughput(llm, items)}
            for hop, url in urls.items():
                async with connect(url, API_KEY) as client:
                    row = await run_closed(client, Load(model, items), streams, lambda: None)
                if row["failed"]:
                    raise RuntimeError(row["first_error"])
                results[hop] = row["output_tokens_per_s"]
            progress(f"round {number} of {rounds}: {results}")
            if number:
                for hop, value in results.items():
                    seen[hop].append(value)
    return seen


def _engine_throughput(llm: LLM, items: Sequence[TextWork]) -> float:
    prompts = [llm.tokenizer.render_chat([{"role": "user", "content": item.text}]) for item in items]
    params = SamplingParams(temperature=0.0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
    started = time.perf_counter()
    llm.generate(prompts, params)
    return len(items) * OUTPUT_TOKENS / (time.perf_counter() - started)


async def _first_tokens(
    config: EngineConfig, urls: dict[str, str], model: str, log: AnswerLog, count: int, progress: Progress
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds by hop, one request at a time, and how many of them were spent outside of the engine. Each prompt
    goes to every hop before the next one does. Another hop begins each time, so that no hop always follows the same one
    and profits from its caches."""
    seen: dict[str, list[float]] = {hop: [] for hop in HOPS}
    outside: dict[str, list[float]] = {hop: [] for hop in HOPS}
    engine = await AsyncEngine.from_config(config)
    clients = {hop: connect(url, API_KEY) for hop, url in urls.items()}
    try:
        for number, item in enumerate(random_texts(count + 1, PROMPT_WORDS, 2, seed=1000)):
            first = number % len(HOPS)
            for hop in HOPS[first:] + HOPS[:first]:
                await asyncio.sleep(PAUSE_S)
                if hop in clients:
                    log.skip()
                    row = await run_closed(clients[hop], Load(model, [item]), 1, lambda: None)
                    if row["failed"]:
                        raise RuntimeError(row["first_error"])
                    first_ms, inside_ms = row["ttft_ms_p50"], await log.first_token_ms()
                else:
                    first_ms = inside_ms = await _engine_first_token(engine, item)
                if number:  # the first one opens connections
                    seen[hop].append(first_ms)
                    outside[hop].append(first_ms - inside_ms)
        progress(f"first tokens of {count} prompts measured")
    finally:
        for client in clients.values():
            await client.aclose()
        await engine.shutdown()
    return seen, outside


async def _engine_first_token(engine: AsyncEngine, item: TextWork) -> float:
    started = time.perf_counter()
    prompt = engine.tokenizer.render_chat([{"role": "user", "content": item.text}])
    params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
    async with engine.generate(prompt, params) as stream:
        await anext(stream)
        return 1e3 * (time.perf_counter() - started)
