"""Measures the ratings; each part writes its section of benchmarks/results/ratings.json, with commit and machine.

python -m benchmarks.ratings coverage [--replications N]   how often intervals and ranks are true (15 minutes)
python -m benchmarks.ratings agreement                     evalica, choix, arena-rank, statsmodels; their environment is
                                                           made by `python -m benchmarks.peers setup ratings`
python -m benchmarks.ratings speed [--against COMMIT]      how long a leaderboard takes, beside the code of a commit
python -m benchmarks.ratings report                        docs/ratings.md from the results
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ratings.agreement import measure_agreement
from benchmarks.ratings.coverage import measure_coverage
from benchmarks.ratings.report import write_report
from benchmarks.ratings.speed import compare_speed, measure_speed
from cli.bench.record import commit, machine

RESULTS = Path(__file__).parents[1] / "results" / "ratings.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["coverage", "agreement", "speed", "report"])
    parser.add_argument("--replications", type=int, default=400, help="drawn arenas for each figure of coverage")
    parser.add_argument("--votes", type=int, default=200_000, help="of the large set of agreement and speed")
    parser.add_argument("--models", type=int, default=60, help="of speed")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each timing of speed")
    parser.add_argument("--against", metavar="COMMIT", help="speed: also the code of this commit, in turns")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the results are kept")
    options = parser.parse_args()
    if options.part == "report":
        write_report(options.json)
        return
    head = {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": commit()}
    where = {**machine(), "numpy": np.__version__}
    section = {**head, "machine": where, **_measure(options)}
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    options.json.write_text(json.dumps({**results, options.part: section}, indent=2) + "\n")
    print(json.dumps(section, indent=2))


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    if options.part == "coverage":
        return measure_coverage(options.replications)
    if options.part == "agreement":
        return measure_agreement(num_large=options.votes)
    figures = measure_speed(options.votes, options.models, options.repeats)
    if options.against is not None:
        figures["cpu_in_turns"] = compare_speed(options.against, options.votes, options.models)
    return figures


if __name__ == "__main__":
    main()
