"""Each Triton kernel on this CUDA device: time, share of what the device copies or multiplies at, and its goal.

python -m benchmarks.kernels [--kernel TEXT] [--json FILE]    measures
python -m benchmarks.kernels tune [--tables FOLDER]           measures tile sizes and writes engine/kernels/tuned
python -m benchmarks.kernels report [--architecture N ...]    machine code of what models launch: needs no device
python -m benchmarks.kernels record [--architecture N ...]    checks what has changed since, for sm_90 or others

Results are written after every row, and nothing begins after --budget-s seconds. The exit status says whether all rows
could be measured. With --device cpu --quick everything is tiny and runs in Triton's interpreter, which only checks that
the benchmark runs.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RESULT = Path(__file__).parent.parent / "results" / "kernels.json"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", choices=("measure", "tune", "report", "record"), default="measure")
    parser.add_argument("--kernel", default="", help="only those whose name holds this text, or one of TEXT,...")
    parser.add_argument("--json", type=Path, default=None, help=f"where measurements go; on cuda {RESULT.name}")
    parser.add_argument("--tables", type=Path, default=None, help="where tuned tiles go; on cuda engine/kernels/tuned")
    parser.add_argument("--architecture", type=int, action="append", help="report, record: sm_N; default 90")
    parser.add_argument("--budget-s", type=float, default=480.0)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny shapes")
    chosen = parser.parse_args(arguments)
    deadline = time.monotonic() + chosen.budget_s
    if chosen.task in ("report", "record"):
        os.environ["TRITON_INTERPRET"] = "0"  # which Triton reads when it is first imported
        from benchmarks.kernels.report import update_record, write_report

        architectures = chosen.architecture or [90]
        if chosen.task == "report":
            sys.exit(write_report(architectures))
        sys.exit(max(update_record(architecture, chosen.kernel) for architecture in architectures))
    if chosen.device == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")  # likewise
        if not chosen.quick or (chosen.json or chosen.tables) is None:
            parser.error("--device cpu needs --quick, and a place for what it writes")
    import torch

    if chosen.device == "cuda" and not torch.cuda.is_available():
        sys.exit("There is no CUDA device here: kernels can be neither measured nor tuned.")
    if chosen.device == "cpu":
        from tests.engine.kernels.gpu import old_interpreter

        old_interpreter.mend()
    from benchmarks.kernels.measure import measure, tune

    device = torch.device(chosen.device)
    with torch.inference_mode():
        if chosen.task == "tune":
            tune(device, chosen.tables, deadline, is_quick=chosen.quick)
        elif num_failed := measure(device, chosen.kernel, chosen.json or RESULT, deadline, is_quick=chosen.quick):
            sys.exit(f"{num_failed} rows failed")


if __name__ == "__main__":
    main()
