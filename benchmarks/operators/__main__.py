"""Each CPU operator: time, bytes or arithmetic, and its share of what this machine can do, measured in the same run.

python -m benchmarks.operators [--operator TEXT] [--threads N] [--seconds S] [--quick] [--json FILE]
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.operators.cases import all_cases
from benchmarks.operators.limits import measure_limits, sample_seconds
from benchmarks.operators.rows import row_of
from benchmarks.peers.noise import NoiseMeter
from cli.bench import record

RESULT = Path(__file__).parent.parent / "results" / "operators.json"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operator", help="only those whose name holds this text")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each case")
    parser.add_argument("--quick", action="store_true", help="few shapes: to see that everything runs")
    parser.add_argument("--json", type=Path, default=RESULT)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    settings = {"threads": chosen.threads, "seconds": chosen.seconds, "page_tokens": 16}
    document = record.document("operators", settings, [])  # before: the commit that the run started with
    with torch.inference_mode(), NoiseMeter(os.getpid()) as meter:
        limits = measure_limits(3 * chosen.seconds, is_quick=chosen.quick)
        print(limits, file=sys.stderr, flush=True)
        measured = []
        for case in all_cases(chosen.threads, is_quick=chosen.quick):
            if chosen.operator is None or chosen.operator in case.operator:
                times = sample_seconds(case.make(), chosen.seconds)
                measured.append((case, times))
                print(_line(row_of(case, times, limits)), flush=True)
        # The limits are measured again and the better value counts: a limit lowered by other processes would flatter
        # every operator.
        limits = limits.best_of(measure_limits(3 * chosen.seconds, is_quick=chosen.quick))
        rows = [row_of(case, times, limits) for case, times in measured]
    noise = asdict(meter.noise())
    record.write(chosen.json, {**document, "rows": rows, "limits": asdict(limits), "noise": noise})


def _line(row: dict[str, Any]) -> str:
    name = f"{row['operator']} ({row['implementation']}), {row['shape']}, {row['dtype']}"
    return f"{name:80} {row['best_us']:10.1f} us, {100 * row['share_of_limit']:5.1f} % of the limit"


if __name__ == "__main__":
    main()
