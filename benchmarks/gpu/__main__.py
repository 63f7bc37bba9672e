"""End-to-end speed on one GPU: decode, prefill and whole loads beside the device's bounds, our goals for an H200 and
transformers in the same run.

python -m benchmarks.gpu [--json FILE] [--quick] [--only NAME,...] [--profile] [--device cpu] [--budget-s SECONDS]
python -m benchmarks.gpu facts               the device and the versions, as a line of JSON
python -m benchmarks.gpu report FOLDER       tables of the results in a folder, beside bounds, goals and other engines
python -m benchmarks.gpu estimates           the tables of docs/gpu.md, from shapes and from the results of GPUs

Qwen3-0.6B, Llama-3.2-1B and Llama-3.1-8B with random weights, each in a process of its own. On cpu everything is tiny,
which only checks that the benchmark runs. The result is written after every row: a run that is cut off leaves what it
has measured. The exit status says whether all of our own rows could be measured.
"""

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

RESULT = Path(__file__).parent.parent / "results" / "gpu.json"
_PROFILED_STEPS = 20


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    chosen = _parser().parse_args(arguments)
    match chosen.task:
        case "report":
            from benchmarks.gpu.report import report

            text = report(chosen.folder)
            if chosen.out is None:
                print(text)
            else:
                chosen.out.write_text(text, encoding="utf-8")
        case "estimates":
            from benchmarks.gpu.estimates import write_tables

            write_tables()
        case "facts":
            from benchmarks.gpu.measure import facts

            print(json.dumps({"facts": facts(chosen.device)}))
        case _:
            _measure(chosen, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", metavar="facts | report | estimates", required=False)
    report = tasks.add_parser("report")
    report.add_argument("folder", type=Path)
    report.add_argument("--out", type=Path, default=None, help="a file; default: standard output")
    tasks.add_parser("estimates")
    facts = tasks.add_parser("facts")
    for one in (parser, facts):
        one.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path, default=None, help=f"default: {RESULT.name} of the results, on cuda")
    parser.add_argument("--append", action="store_true", help="to the file: rows of other models stay")
    parser.add_argument("--only", help="names of models, and transformers; default: all")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # one of them in this process, whose rows are added
    parser.add_argument("--quick", action="store_true", help="two models, in nine minutes with all other questions")
    parser.add_argument("--profile", action="store_true", help=f"each kernel of a step, over {_PROFILED_STEPS} steps")
    parser.add_argument("--budget-s", type=float, default=450.0, help="rows that would begin too late are left out")
    parser.add_argument("--no-peers", action="store_true", help="no transformers")
    parser.add_argument("--operators", choices=["auto", "torch"], help="of the engine: norms and activations of torch")
    parser.add_argument("--enforce-eager", action="store_true", help="no graphs: every kernel is launched by itself")
    parser.add_argument("--terabytes-per-s", type=float, help="of the device's memory; default: measured by a copy")
    parser.add_argument("--teraflops", type=float, help="of products in bfloat16; default: measured")
    parser.add_argument("--verbose", action="store_true", help="the engine's log too: memory, and each graph")
    return parser


def _measure(chosen: argparse.Namespace, arguments: Sequence[str]) -> None:
    from benchmarks.gpu.measure import measure, measure_part, read
    from benchmarks.gpu.plan import MINIATURE, QUICK, WHOLE, changed

    is_cuda = chosen.device == "cuda"
    plan = changed(
        (QUICK if chosen.quick else WHOLE) if is_cuda else MINIATURE,
        num_profiled=_PROFILED_STEPS if chosen.profile else None,
        has_peers=False if chosen.no_peers else None,
        operators=chosen.operators,
        enforce_eager=chosen.enforce_eager or None,
    )
    if chosen.part is not None:
        if chosen.verbose:
            logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d ms %(name)s: %(message)s")
        given = tuple(None if value is None else value * 1e12 for value in (chosen.terabytes_per_s, chosen.teraflops))
        sys.exit(measure_part(plan, chosen.part, chosen.device, chosen.json, chosen.budget_s, given))
    parts = plan.parts if chosen.only is None else tuple(chosen.only.split(","))
    if unknown := set(parts) - set(plan.parts):
        sys.exit(f"there is no {', '.join(sorted(unknown))} in this plan: {', '.join(plan.parts)}")
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.json or (RESULT if is_cuda else Path(folder) / "gpu.json")
        num_failed = measure(plan, parts, path, chosen.budget_s, arguments, appends=chosen.append)
        if chosen.json is None and not is_cuda:
            print(json.dumps(read(path), indent=2))
    if num_failed:
        sys.exit(f"{num_failed} rows of ours failed")


if __name__ == "__main__":
    main()
