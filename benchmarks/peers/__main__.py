"""Agon and other engines on the same token ids, on this machine.

python -m benchmarks.peers setup PEER...                      make their virtual environments
python -m benchmarks.peers prepare --model NAME --peers ...   make checkpoints, exports and conversions
python -m benchmarks.peers run --model NAME --peers ...       measure, and write benchmarks/results/peers-NAME.json
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models import CONFIGS, models_folder
from benchmarks.peers import environments, measure
from benchmarks.peers.variants import VARIANTS, WORKLOADS, expand, prepare
from cli import bench_record

RESULTS = Path(__file__).parent.parent / "results"
DEFAULT_PEERS = "agon,vllm,openvino,openvino-int8,transformers"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup")
    setup.add_argument("environments", nargs="+", choices=list(environments.RECIPES))
    for command in ("prepare", "run"):
        options = commands.add_parser(command)
        options.add_argument("--model", default="smol-135m", choices=list(CONFIGS))
        options.add_argument("--peers", default=DEFAULT_PEERS, help="with commas; groups: transformers, all")
    options.add_argument("--workloads", default=",".join(WORKLOADS))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--max-running", type=int, default=32, help="requests that a peer may serve at once")
    options.add_argument("--wait-quiet", type=float, default=20.0, metavar="S", help="before every run, at most")
    options.add_argument("--json", type=Path, help="default: benchmarks/results/peers-MODEL.json")
    chosen = parser.parse_args(arguments)
    if chosen.command == "setup":
        for name in chosen.environments:
            print(environments.setup(name))
        return
    try:
        peers = expand(chosen.peers.split(","))
    except ValueError as error:
        parser.error(str(error))
    for peer in peers:
        prepare(VARIANTS[peer], chosen.model, models_folder())
    if chosen.command == "run":
        _run(parser, chosen, peers)


def _run(parser: argparse.ArgumentParser, chosen: argparse.Namespace, peers: list[str]) -> None:
    workloads = chosen.workloads.split(",")
    if unknown := [name for name in workloads if name not in WORKLOADS]:
        parser.error(f"there is no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    if min(chosen.rounds, chosen.threads, chosen.max_running) < 1:
        parser.error("--rounds, --threads and --max-running must be at least 1")
    settings = {"threads": chosen.threads, "max_running": chosen.max_running, "max_model_len": 1024, "cache_gib": 2}
    rows, failed = measure.measure(
        peers,
        workloads,
        {**settings, "model": str(models_folder().resolve() / chosen.model)},
        CONFIGS[chosen.model]["vocab_size"],
        rounds=chosen.rounds,
        wait_quiet_s=chosen.wait_quiet,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )
    settings = {"model": chosen.model, **settings, "rounds": chosen.rounds}
    result = bench_record.document("peers", settings, rows, failed=failed)
    path = chosen.json or measure.result_path(RESULTS, chosen.model)
    path.parent.mkdir(parents=True, exist_ok=True)
    bench_record.write(path, result)
    for row in rows:
        figure = {key: row[key] for key in ("output_tokens_per_s", "tpot_ms", "ttft_ms") if key in row}
        print(f"{row['workload']:9} {row['peer']:24} {json.dumps(figure)} others {row['others_cores']}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
