"""What serving costs beside the engine: throughput and first tokens by hop, cold start, memory.

python -m benchmarks.serving [--model NAME] [--threads N] [--only hops|cold-start] [--quick] [--json FILE]
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.models import CONFIGS, make_checkpoint, models_folder
from benchmarks.peers.noise import NoiseMeter
from benchmarks.serving.cold_start import measure_cold_start
from benchmarks.serving.hops import measure_hops
from cli.bench import record

RESULT = Path(__file__).parent.parent / "results" / "serving.json"

_SINGLES = 40  #: requests of each round, one at a time


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smol-135m", choices=list(CONFIGS))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["hops", "cold-start"])
    parser.add_argument("--quick", action="store_true", help="few requests: to see that everything runs")
    parser.add_argument("--json", type=Path, default=RESULT)
    chosen = parser.parse_args(arguments)
    folder = make_checkpoint(chosen.model, models_folder()).resolve()
    rounds, streams = (1, 4) if chosen.quick else (chosen.rounds, chosen.streams)
    more: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    settings = {"model": chosen.model, "threads": chosen.threads, "streams": streams, "rounds": rounds}
    document = record.document("hops", settings, [])  # before: the commit that the run started with
    with NoiseMeter(os.getpid()) as meter:
        if chosen.only != "hops":
            more["cold_start"] = measure_cold_start(folder, threads=chosen.threads, repeats=rounds, streams=streams)
            print(more["cold_start"], flush=True)
        if chosen.only != "cold-start":
            with tempfile.TemporaryDirectory(prefix="agon-bench-") as data:
                rows = measure_hops(
                    folder,
                    Path(data),
                    threads=chosen.threads,
                    streams=streams,
                    singles=3 if chosen.quick else _SINGLES,
                    rounds=rounds,
                    progress=lambda text: print(text, file=sys.stderr, flush=True),
                )
    for row in rows:
        print(row, flush=True)
    record.write(chosen.json, {**document, "rows": rows, "noise": asdict(meter.noise()), **more})


if __name__ == "__main__":
    main()
