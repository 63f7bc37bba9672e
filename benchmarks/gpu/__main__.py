"""End-to-end speed on one GPU, in under eight minutes: decode, prefill and whole loads beside the device's bounds, our
goals for an H200 and transformers in the same run; then each kernel alone.

python -m benchmarks.gpu [--json FILE] [--quick] [--profile] [--device cuda | cpu] [--budget-s SECONDS] [--verbose]
python -m benchmarks.gpu report FOLDER       tables of the results in a folder, beside bounds, goals and other engines
python -m benchmarks.gpu estimates           the table of docs/gpu.md, from shapes and from the results of GPUs

Without --quick: Qwen3-0.6B, Llama-3.2-1B and Llama-3.1-8B with random weights. On cpu everything is tiny, which only
checks that the benchmark runs. The result is written after every row: a run that is cut off leaves what it has
measured. The exit status says whether all of our own rows could be measured.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

RESULT = Path(__file__).parent.parent / "results" / "gpu.json"
_PROFILED_STEPS = 20


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parser().parse_args(arguments)
    if chosen.task == "report":
        from benchmarks.gpu.report import report

        text = report(chosen.folder)
        if chosen.out is None:
            print(text)
        else:
            chosen.out.write_text(text, encoding="utf-8")
    elif chosen.task == "estimates":
        from benchmarks.gpu.estimates import write_table

        write_table()
    else:
        _measure(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", metavar="report | estimates", required=False)
    report = tasks.add_parser("report")
    report.add_argument("folder", type=Path)
    report.add_argument("--out", type=Path, default=None, help="a file; default: standard output")
    tasks.add_parser("estimates")
    parser.add_argument("--json", type=Path, default=None, help=f"default: {RESULT.name} of the results, on cuda")
    parser.add_argument("--quick", action="store_true", help="two models, few points, no kernels alone")
    parser.add_argument("--profile", action="store_true", help=f"each kernel of a step, over {_PROFILED_STEPS} steps")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--budget-s", type=float, default=450.0, help="rows that would begin too late are left out")
    parser.add_argument("--no-kernels", action="store_true", help="not each kernel alone")
    parser.add_argument("--no-peers", action="store_true", help="no transformers")
    parser.add_argument("--operators", choices=["auto", "torch"], help="of the engine: norms and activations of torch")
    parser.add_argument("--enforce-eager", action="store_true", help="no graphs: every kernel is launched by itself")
    parser.add_argument("--terabytes-per-s", type=float, help="of the device's memory; default: measured by a copy")
    parser.add_argument("--teraflops", type=float, help="of products in bfloat16; default: measured")
    parser.add_argument("--verbose", action="store_true", help="the engine's log too: memory, and each graph")
    return parser


def _measure(chosen: argparse.Namespace) -> None:
    import torch

    from benchmarks.gpu.measure import measure
    from benchmarks.gpu.plan import MINIATURE, QUICK, WHOLE, changed

    if chosen.verbose:
        logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d ms %(name)s: %(message)s")
    is_cuda = chosen.device == "cuda"
    if is_cuda and not torch.cuda.is_available():
        sys.exit("there is no CUDA device; --device cpu --quick shows that everything runs")
    plan = changed(
        (QUICK if chosen.quick else WHOLE) if is_cuda else MINIATURE,
        num_profiled=_PROFILED_STEPS if chosen.profile else None,
        has_peers=False if chosen.no_peers else None,
        operators=chosen.operators,
        enforce_eager=chosen.enforce_eager or None,
    )
    given = tuple(None if value is None else value * 1e12 for value in (chosen.terabytes_per_s, chosen.teraflops))
    num_failed = measure(
        plan,
        chosen.device,
        chosen.json or (RESULT if is_cuda else None),
        chosen.budget_s,
        given,
        has_kernels=is_cuda and not chosen.quick and not chosen.no_kernels,
    )
    if num_failed:
        sys.exit(f"{num_failed} rows of ours failed")


if __name__ == "__main__":
    main()
