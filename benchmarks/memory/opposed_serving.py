"""Opposed load in real serving on CPU: models in one process, of which another one has the load in every phase.

    python -m benchmarks.memory.opposed_serving

One EngineHost and its page pool (`shared`), against the same with the requests of each model held to its part of the
bytes, as by pools of their own (`split`: a ceiling for each; nothing is cached beyond requests). Both ways have the
same threads and the same turns, take turns in one process, and get the same requests. Closed-loop clients of the busy
model; meanwhile one request after another, with pauses, of each model without other work, beside its time alone. Two
demo models; then a Llama-like one of them with a Gemma-like and a hybrid one, both with random weights. The clients are
tasks of the event loop that serves, in this process. Writes opposed_serving.json beside this file.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
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
EXPERIMENTS = {"two models": ("raven", "robin"), "two and a hybrid": ("robin", "gemma", "jamba")}
#: Of the models with random weights: 4.7 and 3.4 million parameters.
_RANDOM_WEIGHTS: dict[str, dict[str, Any]] = {
    "gemma": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "sliding_window": 128,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "jamba": {
        "architectures": ["JambaForCausalLM"],
        "model_type": "jamba",
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "num_experts": 1,
        "num_experts_per_tok": 1,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_dt_rank": 12,
        "hidden_act": "silu",
    },
}
_COMMON = {
    "vocab_size": 2048,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 4,
    "pad_token_id": 0,
    "dtype": "bfloat16",
}
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
    #: Time of each request of an idle model over its time alone: beside the busy model, and beside one of another idle
    #: model too.
    idle_ratios: list[float] = field(default_factory=list)
    idle_ratios_beside_two: list[float] = field(default_factory=list)
    preemptions: int = 0


@dataclass(eq=False)
class _IdleRequest:
    is_beside_two: bool = False  #: another idle model had one meanwhile


@dataclass
class _Phase:
    engines: dict[str, AsyncEngine]
    busy: str
    alone_s: dict[str, float]
    end: float
    outcome: Outcome
    options: argparse.Namespace
    idle: set[_IdleRequest] = field(default_factory=set)  #: that run


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool-kib", type=int, default=24 * 1024, help="page pool of all models together")
    parser.add_argument("--clients", type=int, default=64, help="clients of the busy model")
    parser.add_argument("--phase-s", type=float, default=20.0, help="how long a model is the busy one")
    parser.add_argument("--rounds", type=int, default=1, help="of each way, every model once the busy one in each")
    parser.add_argument("--patience-s", type=float, default=1.0, help="a first token that comes later is too late")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    before, started = machine(), time.perf_counter()
    experiments = {name: _experiment(models, options) for name, models in EXPERIMENTS.items()}
    results = {
        "benchmark": "opposed load in real serving",
        "commit": commit(),
        "machine": before,
        "settings": vars(options),
        "seconds": round(time.perf_counter() - started),
        **experiments,
    }
    (_HERE / "opposed_serving.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def _experiment(models: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        configs = {name: _config(name, Path(folder), options) for name in models}
        outcomes = asyncio.run(_measure(configs, options))
    ways = {way: _summary(outcome) for way, outcome in outcomes.items()}
    gained = ("admitted_tokens", "batch", "goodput_tokens_per_s", "output_tokens_per_s")
    return {
        "models": models,
        "ways": ways,
        "gain": {key: round(ways["shared"][key] / ways["split"][key], 2) for key in gained},
    }


def _config(name: str, folder: Path, options: argparse.Namespace) -> EngineConfig:
    """folder: for the configurations of models with random weights."""
    if name not in _RANDOM_WEIGHTS:
        path, load_format = _ROOT / "demo_models" / name, "auto"
    else:
        path, load_format = folder / name, "dummy"
        path.mkdir()
        (path / "config.json").write_text(json.dumps({**_COMMON, **_RANDOM_WEIGHTS[name]}))
    return EngineConfig(str(path), load_format=load_format, enable_prefix_caching=False, max_running=options.clients)


async def _measure(configs: dict[str, EngineConfig], options: argparse.Namespace) -> dict[str, Outcome]:
    outcomes = {way: Outcome() for way in _WAYS}
    for number in range(options.rounds):
        for way in _WAYS if number % 2 == 0 else reversed(_WAYS):
            await _serve(way, configs, outcomes[way], options, random.Random(number))
    return outcomes


async def _serve(
    way: str,
    configs: dict[str, EngineConfig],
    outcome: Outcome,
    options: argparse.Namespace,
    rng: random.Random,
) -> None:
    """One host, in which every model is the busy one for a phase."""
    pool_bytes = options.pool_kib * _KIB
    bounds = {"ceiling_bytes": pool_bytes // len(configs)} if way == "split" else {}
    host = EngineHost(pool_bytes=pool_bytes, num_threads=1)
    engines = {name: await host.add(name, config, **bounds) for name, config in configs.items()}
    for busy in configs:
        alone_s = {name: await _alone_s(engine, rng) for name, engine in engines.items() if name != busy}
        before = engines[busy].stats().preemptions_total
        end = time.perf_counter() + options.phase_s
        await _serve_phase(_Phase(engines, busy, alone_s, end, outcome, options), rng)
        outcome.preemptions += engines[busy].stats().preemptions_total - before
    await host.shutdown()


async def _serve_phase(phase: _Phase, rng: random.Random) -> None:
    busy, outcome, options = phase.engines[phase.busy], phase.outcome, phase.options
    tasks = [
        asyncio.create_task(_client(busy, outcome, phase.end, options.patience_s, random.Random(rng.random())))
        for _ in range(options.clients)
    ]
    tasks.append(asyncio.create_task(_watch(busy, outcome, phase.end)))
    idle = [name for name in phase.engines if name != phase.busy]
    tasks += [asyncio.create_task(_ask_idle(name, phase, random.Random(number))) for number, name in enumerate(idle)]
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


async def _ask_idle(name: str, phase: _Phase, rng: random.Random) -> None:
    engine, alone_s, outcome = phase.engines[name], phase.alone_s[name], phase.outcome
    await asyncio.sleep(1.0)  # until the other model is busy
    while time.perf_counter() + 2.0 * alone_s < phase.end:
        request = _IdleRequest(bool(phase.idle))
        for other in phase.idle:
            other.is_beside_two = True
        phase.idle.add(request)
        ratio = await _idle_s(engine, rng) / alone_s
        phase.idle.remove(request)
        (outcome.idle_ratios_beside_two if request.is_beside_two else outcome.idle_ratios).append(ratio)
        await asyncio.sleep(rng.uniform(0.5, 1.5) * _IDLE_PAUSE_S)


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
    ratios, beside_two = sorted(outcome.idle_ratios), sorted(outcome.idle_ratios_beside_two)
    return {
        "admitted_tokens": outcome.admitted_tokens,
        "batch": round(statistics.mean(outcome.batches), 2),
        "goodput_tokens_per_s": round(outcome.good_tokens / outcome.seconds, 1),
        "output_tokens_per_s": round(outcome.output_tokens / outcome.seconds, 1),
        "idle_median": round(statistics.median(ratios), 2),
        "idle_worst": round(ratios[-1], 2),
        "idle_requests": len(ratios),
        "idle_median_beside_two": round(statistics.median(beside_two), 2) if beside_two else None,
        "idle_worst_beside_two": round(beside_two[-1], 2) if beside_two else None,
        "idle_requests_beside_two": len(beside_two),
        "preemptions": outcome.preemptions,
    }


if __name__ == "__main__":
    main()
