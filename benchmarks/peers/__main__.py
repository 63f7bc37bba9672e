"""Agon and other engines on the same token ids, on this machine.

python -m benchmarks.peers setup PEER...                      make their virtual environments
python -m benchmarks.peers prepare --model NAME --peers ...   make checkpoints, exports and conversions
python -m benchmarks.peers run --model NAME --peers ...       measure, and write benchmarks/results/peers-NAME.json
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.models import CONFIGS, models_folder
from benchmarks.operators.limits import Limits, measure_limits
from benchmarks.peers import environments, measure
from benchmarks.peers.variants import WORKLOADS, Variant, available, expand, prepare, with_options
from cli.bench import record

_LIMITS_S = 1.0  #: for each limit
RESULTS = Path(__file__).parent.parent / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup")
    setup.add_argument("environments", nargs="+", choices=list(environments.RECIPES))
    for command in ("prepare", "run"):
        options = commands.add_parser(command)
        options.add_argument("--model", default="smol-135m", choices=list(CONFIGS))
        options.add_argument(
            "--peers", help="with commas; groups: transformers, 4-bits, all; default: the usual ones that are set up"
        )
        options.add_argument(
            "--set", action="append", default=[], metavar="PEER.NAME=VALUE", help="an option of that peer's own call"
        )
    options.add_argument("--workloads", default=",".join(WORKLOADS))
    options.add_argument("--limits", action="store_true", help="measure the machine's limits, before and after")
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
        peers = expand(chosen.peers.split(",")) if chosen.peers else available()
        variants = with_options(chosen.set)
    except ValueError as error:
        parser.error(str(error))
    failed = {peer: why for peer in peers if (why := _prepare(variants[peer], chosen.model)) is not None}
    if chosen.command == "run":
        _run(parser, chosen, {peer: variants[peer] for peer in peers if peer not in failed}, failed)
    elif failed:
        raise SystemExit("\n".join(f"{peer}: {why}" for peer, why in failed.items()))


def _prepare(variant: Variant, model: str) -> str | None:
    """The reason if a peer failed to prepare; the other peers are measured in any case."""
    try:
        prepare(variant, model, models_folder())
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        return str(error)
    return None


def _run(
    parser: argparse.ArgumentParser, chosen: argparse.Namespace, peers: dict[str, Variant], failed: dict[str, str]
) -> None:
    workloads = chosen.workloads.split(",")
    if unknown := [name for name in workloads if name not in WORKLOADS]:
        parser.error(f"there is no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    if min(chosen.rounds, chosen.threads, chosen.max_running) < 1:
        parser.error("--rounds, --threads and --max-running must be at least 1")
    settings = {"threads": chosen.threads, "max_running": chosen.max_running, "max_model_len": 1024, "cache_gib": 2}
    said = {"model": chosen.model, **settings, "rounds": chosen.rounds, **({"set": chosen.set} if chosen.set else {})}
    result = record.document("peers", said, [])  # before: the commit and the load that the run started with
    limits = _limits(chosen)
    rows, failed_later = measure.measure(
        list(peers),
        workloads,
        {**settings, "model": str(models_folder().resolve() / chosen.model)},
        CONFIGS[chosen.model]["vocab_size"],
        rounds=chosen.rounds,
        wait_quiet_s=chosen.wait_quiet,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
        variants=peers,
    )
    path = chosen.json or measure.result_path(RESULTS, chosen.model)
    path.parent.mkdir(parents=True, exist_ok=True)
    if limits is not None and (later := _limits(chosen)) is not None:
        read = {peer: variant.bits_read for peer, variant in peers.items() if variant.bits_read is not None}
        result |= {"limits": asdict(limits.best_of(later)), "bits_read": read}
    record.write(path, {**result, "rows": rows, "failed": {**failed, **failed_later}})
    for row in rows:
        figure = {key: row[key] for key in ("output_tokens_per_s", "tpot_ms", "ttft_ms") if key in row}
        print(f"{row['workload']:9} {row['peer']:24} {json.dumps(figure)} others {row['others_cores']}")
    if failed or failed_later:
        raise SystemExit(f"failed: {', '.join((*failed, *failed_later))}")


def _limits(chosen: argparse.Namespace) -> Limits | None:
    """None: they were not asked for."""
    if not chosen.limits:
        return None
    torch.set_num_threads(chosen.threads)
    return measure_limits(_LIMITS_S)


if __name__ == "__main__":
    main()
