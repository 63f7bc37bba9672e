"""The table of machine code in docs/kernels.md: every shipped configuration on every architecture, compiled here.
Digests of those that are as expected go into a record, so that tests compile only what has changed since."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import triton

from engine.kernels.gpu.ahead_of_time import Outcome, Report, compile_all, digest, shipped
from engine.kernels.gpu.compilation import ARCHITECTURES, Compilation

DOCUMENT = Path(__file__).parents[2] / "docs" / "kernels.md"
RECORD = Path(__file__).with_name("machine_code.json")  #: digest -> name
_BEGIN, _END = "<!-- generated: make kernel-report -->\n", "<!-- end of what is generated -->\n"


def write_report(document: Path = DOCUMENT, record: Path = RECORD) -> int:
    """Write the table and the record. Returns 1 if a configuration is not as expected; it is in the table in any case,
    and never in the record."""
    outcomes: list[Outcome] = []
    for outcome in compile_all():
        outcomes.append(outcome)
        print(f"{len(outcomes)}: {outcome.name}, sm_{outcome.architecture}", file=sys.stderr, flush=True)
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    document.write_text(before + _BEGIN + "\n" + table(outcomes) + "\n" + _END + after, encoding="utf-8")
    record.write_text(json.dumps(record_of(shipped(), outcomes), indent=0) + "\n", encoding="utf-8")
    return int(any(outcome.violations for outcome in outcomes))


def record_of(compilations: Sequence[Compilation], outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Digest -> name of the configurations that are as expected on every architecture."""
    wrong = {outcome.name for outcome in outcomes if outcome.violations}
    return {digest(each): each.name for each in compilations if each.name not in wrong}


def table(outcomes: Sequence[Outcome]) -> str:
    by_name: dict[str, dict[int, Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.name, {})[outcome.architecture] = outcome
    wrong = [f"sm_{o.architecture}, {o.name}: {text}" for o in outcomes for text in o.violations]
    lines = [
        f"{len(by_name)} configurations, {len(outcomes)} binaries, Triton {triton.__version__}, {_ptxas_version()}. "
        + (f"Not as expected: {'; '.join(wrong)}." if wrong else "All as expected; none spills a register."),
        "",
        "| configuration | registers on sm_80, 89, 90 | shared memory, bytes | loads | async copies | products |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in by_name.items():
        reports = [found[a].report if a in found else None for a in ARCHITECTURES]
        newest = next((report for report in reversed(reports) if report is not None), None)
        cells = [
            name,
            _same_or_each([None if r is None else f"{r.registers}{_spills(r)}" for r in reports]),
            _same_or_each([None if r is None else f"{r.shared_bytes:,}" for r in reports]),
            "" if newest is None else _counts(newest.loads),
            "" if newest is None else _counts(newest.copies),
            "" if newest is None else _counts(newest.products),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _same_or_each(cells: Sequence[str | None]) -> str:
    known = {cell for cell in cells}
    return (cells[0] or "") if len(known) == 1 else ", ".join("-" if cell is None else cell for cell in cells)


def _spills(report: Report) -> str:
    return f" (spills {report.stack_bytes} bytes)" if report.stack_bytes else ""


def _counts(counts: Mapping[str, int]) -> str:
    """ "128: 4, 32: 1": widest first."""
    return ", ".join(f"{what}: {count}" for what, count in reversed(list(counts.items())))


def _ptxas_version() -> str:
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    said = subprocess.run([str(ptxas), "--version"], check=True, capture_output=True, text=True).stdout
    return "ptxas " + said.partition("release ")[2].partition(",")[0]
