"""Opposed load in real serving on CPU: demo models in one process, of which another one has the load in every phase.

    python -m benchmarks.memory.opposed_serving

One EngineHost and its page pool (`shared`), against the same with the requests of each model held to its part of the
bytes, as by pools of their own (`split`: a ceiling for each; nothing is cached beyond requests). Both ways have the
same threads and the same turns, take turns in one process, and get the same requests. Closed-loop clients of the busy
model; meanwhile one request after another of a model without other work, beside its time alone. Writes
opposed_serving.json beside this file.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.bench.record import commit, machine
from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.hosting import EngineHost
from engine.sampling_params import SamplingParams
from model_worker.main import SWITCH_INTERVAL_S

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_MODELS = ("raven", "robin")
_WAYS = ("shared", "split")
_KIB = 1 << 10
_PROMPT, _OUTPUT = (16, 160), (64, 320)  #: tokens of the clients' requests: between the two, evenly
_IDLE_PROMPT, _IDLE_OUTPUT = 48, 96  #: of the requests whose time is compared with their time alone
_IDLE_PAUSE_S = 0.3
_SAMPLE_S = 0.05


@dataclass
class Outcome:
    """What one way has achieved, over all its phases."""

    seconds: float = 0.0
    admitted_tokens: int = 0  #: prompt and output of requests whose first token came in time
    good_tokens: int = 0  #: output of those of them that ended within their phase
    output_tokens: int = 0
    batches: list[int] = field(default_factory=list)  #: running sequences of the busy model
    idle_ratios: list[float] = field(default_factory=list)
    preemptions: int = 0


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool-kib", type=int, default=24 * 1024, help="page pool of all models together")
    parser.add_argument("--clients", type=int, default=64, help="clients of the busy model")
    parser.add_argument("--phase-s", type=float, default=8.0, help="how long a model is the busy one")
    parser.add_argument("--rounds", type=int, default=2, help="of each way, every model once the busy one in each")
    parser.add_argument("--patience-s", type=float, default=1.0, help="a first token that comes later is too late")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    started = time.perf_counter()
    outcomes = asyncio.run(_measure(options))
    ways = {way: _summary(outcome) for way, outcome in outcomes.items()}
    results = {
        "benchmark": "opposed load in real serving",
        "commit": commit(),
        "machine": machine(),
        "settings": {**vars(options), "models": _MODELS},
        "seconds": round(time.perf_counter() - started),
        "ways": ways,
        "gain": {
            key: round(ways["shared"][key] / ways["split"][key], 2)
            for key in ("admitted_tokens", "batch", "goodput_tokens_per_s", "output_tokens_per_s")
        },
    }
    (_HERE / "opposed_serving.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


async def _measure(options: argparse.Namespace) -> dict[str, Outcome]:
    outcomes = {way: Outcome() for way in _WAYS}
    for number in range(options.rounds):
        for way in _WAYS if number % 2 == 0 else reversed(_WAYS):
            await _serve(way, outcomes[way], options, random.Random(number))
    return outcomes


async def _serve(way: str, outcome: Outcome, options: argparse.Namespace, rng: random.Random) -> None:
    """One host, in which every model is the busy one for a phase."""
    pool_bytes = options.pool_kib * _KIB
    part = pool_bytes // len(_MODELS)
    bounds = {"ceiling_bytes": part} if way == "split" else {}
    host = EngineHost(pool_bytes=pool_bytes, num_threads=1)
    engines = {
        name: await host.add(
            name,
            EngineConfig(str(_ROOT / "demo_models" / name), enable_prefix_caching=False, max_running=options.clients),
            **bounds,
        )
        for name in _MODELS
    }
    alone = {name: await _alone_s(engine, rng) for name, engine in engines.items()}
    for busy in _MODELS:
        before = engines[busy].stats().preemptions_total
        await _phase(busy, engines, alone, outcome, options, rng)
        outcome.preemptions += engines[busy].stats().preemptions_total - before
    await host.shutdown()


async def _phase(
    busy: str,
    engines: dict[str, AsyncEngine],
    alone: dict[str, float],
    outcome: Outcome,
    options: argparse.Namespace,
    rng: random.Random,
) -> None:
    began = time.perf_counter()
    end = began + options.phase_s
    tasks = [
        asyncio.create_task(_client(engines[busy], outcome, end, options.patience_s, random.Random(rng.random())))
        for _ in range(options.clients)
    ]
    tasks.append(asyncio.create_task(_watch(engines[busy], outcome, end)))
    for name, engine in engines.items():
        if name != busy:
            tasks.append(asyncio.create_task(_ask_idle(engine, alone[name], outcome, end, random.Random(1))))
    await asyncio.gather(*tasks)  # the last answers end after the phase
    outcome.seconds += options.phase_s


async def _client(engine: AsyncEngine, outcome: Outcome, end: float, patience_s: float, rng: random.Random) -> None:
    while (asked := time.perf_counter()) < end:
        num_prompt, num_output = rng.randint(*_PROMPT), rng.randint(*_OUTPUT)
        first, num_before_end = None, 0
        async with engine.generate(_prompt(rng, num_prompt), _params(num_output)) as stream:
            async for delta in stream:
                now = time.perf_counter()
                first = now if first is None else first
                num_before_end += len(delta.token_ids) if now < end else 0
        outcome.output_tokens += num_before_end
        if first is not None and first < end and first - asked <= patience_s:
            outcome.admitted_tokens += num_prompt + num_output
            outcome.good_tokens += num_output if num_before_end == num_output else 0


async def _watch(engine: AsyncEngine, outcome: Outcome, end: float) -> None:
    while time.perf_counter() < end:
        outcome.batches.append(engine.stats().running_sequences)
        await asyncio.sleep(_SAMPLE_S)


async def _ask_idle(engine: AsyncEngine, alone_s: float, outcome: Outcome, end: float, rng: random.Random) -> None:
    await asyncio.sleep(1.0)  # until the other model is busy
    while time.perf_counter() + 2.0 * alone_s < end:
        outcome.idle_ratios.append(await _idle_s(engine, rng) / alone_s)
        await asyncio.sleep(_IDLE_PAUSE_S)


async def _alone_s(engine: AsyncEngine, rng: random.Random) -> float:
    """Seconds of a request of the idle model with the machine to itself."""
    seconds = [await _idle_s(engine, rng) for _ in range(8)]
    return statistics.median(seconds[1:])


async def _idle_s(engine: AsyncEngine, rng: random.Random) -> float:
    began = time.perf_counter()
    async with engine.generate(_prompt(rng, _IDLE_PROMPT), _params(_IDLE_OUTPUT)) as stream:
        async for _ in stream:
            pass
    return time.perf_counter() - began


def _prompt(rng: random.Random, num_tokens: int) -> list[int]:
    return [rng.randrange(5, 2048) for _ in range(num_tokens)]


def _params(num_output: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=num_output, ignore_eos=True)


def _summary(outcome: Outcome) -> dict[str, Any]:
    ratios = sorted(outcome.idle_ratios)
    return {
        "admitted_tokens": outcome.admitted_tokens,
        "batch": round(statistics.mean(outcome.batches), 2),
        "goodput_tokens_per_s": round(outcome.good_tokens / outcome.seconds, 1),
        "output_tokens_per_s": round(outcome.output_tokens / outcome.seconds, 1),
        "idle_median": round(statistics.median(ratios), 2),
        "idle_worst": round(ratios[-1], 2),
        "idle_requests": len(ratios),
        "preemptions": outcome.preemptions,
    }


if __name__ == "__main__":
    main()
