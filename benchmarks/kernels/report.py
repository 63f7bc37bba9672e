"""The tables of docs/kernels.md: the machine code of all variants that served models launch, compiled here, and the
launches of their decode steps. Digests of variants that are as expected go into a record, so that tests compile only
what has changed since. After a change of a kernel `update_record` takes minutes, the whole report an hour."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import triton

from benchmarks.kernels.machine_code import (
    Compilation,
    Outcome,
    Report,
    compilations_of,
    compile_all,
    read_record,
    recordings,
    to_compile,
)
from benchmarks.kernels.served_launches import COUNTED_ROWS, Recording
from benchmarks.kernels.served_models import SERVED

DOCUMENT = Path(__file__).parents[2] / "docs" / "kernels.md"
RECORD = Path(__file__).with_name("machine_code.json")  #: digest -> name, architectures on which it was checked
_BEGIN, _END = "<!-- generated: make kernel-report -->\n", "<!-- end of what is generated -->\n"


def write_report(architectures: Sequence[int], document: Path = DOCUMENT, record: Path = RECORD) -> int:
    """Write the tables and the record. Returns 1 if a variant is not as expected; it is in the table in any case, and
    never in the record."""
    recorded = {architecture: recordings(architecture) for architecture in architectures}
    served = {architecture: compilations_of(found) for architecture, found in recorded.items()}
    outcomes = _told(outcome for each in served.values() for outcome in compile_all(each))
    kernels = {each.digest(): each.kernel for found in served.values() for each in found}
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    tables = "\n".join((table(outcomes, kernels), launches_table(recorded[max(architectures)])))
    document.write_text(f"{before}{_BEGIN}\n{tables}\n{_END}{after}", encoding="utf-8")
    _write_record(record, served, {}, outcomes)
    return int(any(outcome.violations for outcome in outcomes))


def update_record(architecture: int, kernel: str = "", record: Path = RECORD) -> int:
    """Check what is not recorded for this architecture and has `kernel` in its name, and record it. Digests that no
    variant has any more are dropped. Returns 1 if a variant is not as expected."""
    checked = read_record(record)
    served = compilations_of(recordings(architecture))
    wanted = to_compile([each for each in served if kernel in each.kernel], checked.get(architecture, ()))
    outcomes = _told(compile_all(wanted))
    _write_record(record, {architecture: served}, checked, outcomes)
    for outcome in outcomes:
        for violation in outcome.violations:
            print(f"sm_{outcome.architecture}, {outcome.name}: {violation}", file=sys.stderr)
    return int(any(outcome.violations for outcome in outcomes))


def _told(outcomes: Iterable[Outcome]) -> list[Outcome]:
    found: list[Outcome] = []
    for outcome in outcomes:
        found.append(outcome)
        print(f"{len(found)}: {outcome.name}, sm_{outcome.architecture}", file=sys.stderr, flush=True)
    return found


def _write_record(
    file: Path,
    served: Mapping[int, Sequence[Compilation]],
    checked: Mapping[int, set[str]],
    outcomes: Sequence[Outcome],
) -> None:
    """Write what is as expected now, or was before and is still launched. Of architectures that are not in `served`
    everything stays."""
    old = json.loads(file.read_text(encoding="utf-8")) if checked else {}
    names = {key: entry["name"] for key, entry in old.items()}
    names |= {each.digest(): each.name for found in served.values() for each in found}
    kept = {
        architecture: keys & {each.digest() for each in served[architecture]} if architecture in served else keys
        for architecture, keys in checked.items()
    }
    for architecture, keys in record_of(outcomes).items():
        kept.setdefault(architecture, set()).update(keys)
    lines = []
    for key, name in sorted(names.items(), key=lambda item: (item[1], item[0])):
        architectures = [architecture for architecture in sorted(kept) if key in kept[architecture]]
        if architectures:
            lines.append(f"{json.dumps(key)}: {json.dumps({'name': name, 'architectures': architectures})}")
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def record_of(outcomes: Sequence[Outcome]) -> dict[int, set[str]]:
    """By architecture, the digests of variants that are as expected there."""
    found: dict[int, set[str]] = {}
    for outcome in outcomes:
        if not outcome.violations:
            found.setdefault(outcome.architecture, set()).add(outcome.digest)
    return found


def table(outcomes: Sequence[Outcome], kernels: Mapping[str, str]) -> str:
    """A row for each kernel and architecture. kernels: digest -> kernel."""
    wrong = [f"sm_{each.architecture}, {each.name}: {text}" for each in outcomes for text in each.violations]
    early = [each for each in outcomes if each.report is not None and each.report.is_early]
    lines = [
        f"{len(outcomes)} variants, Triton {triton.__version__}, {_ptxas_version()}. "
        f"{len(early)} may be launched while the kernel before them runs. "
        + (
            "Not as expected:" if wrong else "All as expected: none spills a register, each of those waits once, first."
        ),
        *(f"* {text}" for text in wrong),
        "",
        "| kernel | sm | variants | registers | stack, bytes | shared memory, bytes | wide loads and copies | "
        "products | early |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, int], list[Report]] = {}
    for outcome in outcomes:
        reports = groups.setdefault((kernels[outcome.digest], outcome.architecture), [])
        if outcome.report is not None:
            reports.append(outcome.report)
    for (kernel, architecture), reports in sorted(groups.items()):
        early_ones = sum(report.is_early for report in reports)
        cells = [
            kernel,
            str(architecture),
            str(len(reports)),
            _range(report.registers for report in reports),
            str(max((report.stack_bytes for report in reports), default=0)),
            _range(report.shared_bytes for report in reports),
            _range(report.num_wide for report in reports),
            ", ".join(sorted({product for report in reports for product in report.products})),
            "all" if early_ones == len(reports) else str(early_ones) if early_ones else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def launches_table(recorded: Sequence[Recording]) -> str:
    """The nodes of each model's decode graphs."""
    lines = [
        "Nodes in the graph of a decode step (kernels of Triton + products of cuBLAS + operators of torch), with few "
        "layers, one of each kind where there are several.",
        "",
        f"| model | layers | variants | {' | '.join(f'{rows} rows' for rows in COUNTED_ROWS)} |",
        f"|---|---|---|{'---|' * len(COUNTED_ROWS)}",
    ]
    for each in recorded:
        config = SERVED[each.name].config
        cells = [each.name, str(config.get("num_hidden_layers", config.get("n_layer"))), str(len(each.variants))]
        for rows in COUNTED_ROWS:
            nodes = each.nodes.get(rows)
            parts = () if nodes is None else (nodes.kernels, nodes.products, nodes.torch)
            cells.append("" if nodes is None else f"{nodes.total} ({' + '.join(map(str, parts))})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _range(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return "" if not found else f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def _ptxas_version() -> str:
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    said = subprocess.run([str(ptxas), "--version"], check=True, capture_output=True, text=True).stdout
    return "ptxas " + said.partition("release ")[2].partition(",")[0]
