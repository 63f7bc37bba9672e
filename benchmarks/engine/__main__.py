"""One step of the engine: how its time grows with batch, context and pages, and what share is not the model's.

python -m benchmarks.engine [--model NAME] [--dtype D] [--threads N] [--quick] [--json FILE]
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.engine.scaling import measure_scaling
from benchmarks.engine.shares import measure_shares
from benchmarks.models import CONFIGS, make_checkpoint, models_folder
from benchmarks.peers.noise import NoiseMeter
from cli.bench import record
from engine.config import EngineConfig

RESULT = Path(__file__).parent.parent / "results" / "engine.json"
POOL_BYTES = 2**30


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smol-135m", choices=[name for name in CONFIGS if name != "gemma2-tiny"])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=15, help="steps at each point; the median counts")
    parser.add_argument("--quick", action="store_true", help="few points: to see that everything runs")
    parser.add_argument("--json", type=Path, default=RESULT)
    chosen = parser.parse_args(arguments)
    folder = make_checkpoint(chosen.model, models_folder())

    def config(page_tokens: int, max_model_len: int) -> EngineConfig:
        return EngineConfig(
            str(folder),
            dtype=chosen.dtype,
            device="cpu",
            page_tokens=page_tokens,
            kv_cache_bytes=POOL_BYTES,
            max_model_len=min(max_model_len, CONFIGS[chosen.model].get("n_positions", max_model_len)),
            num_threads=chosen.threads,
            enable_prefix_caching=False,
        )

    settings = {"model": chosen.model, "dtype": chosen.dtype, "threads": chosen.threads, "repeats": chosen.repeats}
    document = record.document("engine", settings, [])  # before: the commit that the run started with
    with NoiseMeter(os.getpid()) as meter:
        batch, steps = (4, 8) if chosen.quick else (32, 64)
        shares = measure_shares(config(16, 1024), batch=batch, prompt_tokens=128, steps=steps)
        print(shares, flush=True)
        rows = measure_scaling(
            config,
            repeats=chosen.repeats,
            is_quick=chosen.quick,
            progress=lambda text: print(text, file=sys.stderr, flush=True),
        )
    record.write(chosen.json, {**document, "rows": rows, "shares": shares, "noise": asdict(meter.noise())})


if __name__ == "__main__":
    main()
