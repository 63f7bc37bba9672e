"""Main memory of several models in one process, against a process for each: python -m benchmarks.memory.many_models

Models of 135M parameters with random weights in bfloat16, as small as a laptop has them. Every model answers requests
until its workspaces and its part of the page pool have been touched; then /proc/self/smaps_rollup is read. Writes
many_models.json beside this file.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cli.bench.record import commit, machine
from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.hosting import EngineHost
from engine.sampling_params import SamplingParams

_MIB = 1 << 20
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
_PARAMS = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--pool-mib", type=int, default=256, help="page pool of all models together")
    parser.add_argument("--child", choices=("shared", "alone"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(asyncio.run(_measure(options.child, options.models, options.pool_mib * _MIB))))
        return
    shared = _run("shared", options)
    alone = _run("alone", options)
    bound = shared["weights_mib"] + shared["pool_mib"] + 300
    results = {
        "benchmark": "many models",
        "commit": commit(),
        "machine": machine(),
        "models": options.models,
        "one_process": {**shared, "bound_mib": round(bound, 1)},
        "a_process_for_each": {
            "each_mib": alone["resident_mib"],
            "each_private_mib": alone["private_mib"],
            "all_private_mib": round(options.models * alone["private_mib"], 1),
        },
    }
    (Path(__file__).parent / "many_models.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def _run(way: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory.many_models", "--child", way]
    command += ["--models", str(options.models), "--pool-mib", str(options.pool_mib)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


async def _measure(way: str, num_models: int, pool_bytes: int) -> dict[str, Any]:
    """One process: all models in a host, or one of them with its part of the pool."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_CONFIG))
        if way == "alone":
            config = _config(folder, seed=0, kv_cache_bytes=pool_bytes // num_models)
            engine = await AsyncEngine.from_config(config)
            await _touch(engine)
            found = _memory([engine], pool_bytes // num_models)
            await engine.shutdown()
            return found
        host = EngineHost(pool_bytes=pool_bytes)
        engines = [await host.add(f"model-{index}", _config(folder, seed=index)) for index in range(num_models)]
        for engine in engines:
            await _touch(engine)
        found = _memory(engines, pool_bytes)
        await host.shutdown()
        return found


def _config(folder: str, *, seed: int, kv_cache_bytes: int | None = None) -> EngineConfig:
    return EngineConfig(
        folder, load_format="dummy", dtype="bfloat16", device="cpu", seed=seed, kv_cache_bytes=kv_cache_bytes
    )


async def _touch(engine: AsyncEngine) -> None:
    """Long prompts and a batch of decodes."""

    async def ask(index: int) -> None:
        async for _ in engine.generate([1 + (index + position) % 200 for position in range(700)], _PARAMS):
            pass

    await asyncio.gather(*(ask(index) for index in range(4)))


def _memory(engines: list[AsyncEngine], pool_bytes: int) -> dict[str, Any]:
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    kib = {parts[0]: int(parts[1]) for parts in lines}
    return {
        "weights_mib": round(sum(2 * engine.info.num_parameters for engine in engines) / _MIB, 1),
        "pool_mib": round(pool_bytes / _MIB, 1),
        "resident_mib": round(kib["Rss:"] / 1024, 1),
        "private_mib": round((kib["Private_Clean:"] + kib["Private_Dirty:"]) / 1024, 1),
    }


if __name__ == "__main__":
    main()
