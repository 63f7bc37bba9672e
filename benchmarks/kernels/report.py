"""The table of machine code in docs/kernels.md: every shipped configuration on every architecture, compiled here.
Digests of those that are as expected go into a record, so that tests compile only what has changed since. After a
change of a kernel `update_record` takes a minute, the whole report half an hour."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import triton

from engine.kernels.gpu.ahead_of_time import Outcome, Report, compile_all, digest, read_record, shipped
from engine.kernels.gpu.compilation import ARCHITECTURES, Compilation

DOCUMENT = Path(__file__).parents[2] / "docs" / "kernels.md"
RECORD = Path(__file__).with_name("machine_code.json")  #: digest -> name, architectures on which it was checked
_BEGIN, _END = "<!-- generated: make kernel-report -->\n", "<!-- end of what is generated -->\n"


def write_report(document: Path = DOCUMENT, record: Path = RECORD) -> int:
    """Write the table and the record. Returns 1 if a configuration is not as expected; it is in the table in any case,
    and never in the record."""
    outcomes = _told(compile_all())
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    document.write_text(before + _BEGIN + "\n" + table(outcomes) + "\n" + _END + after, encoding="utf-8")
    _write_record(record, {}, outcomes)
    return int(any(outcome.violations for outcome in outcomes))


def update_record(architectures: Sequence[int], name: str = "", record: Path = RECORD) -> int:
    """Check what is not recorded for these architectures and has `name` in its name, and record it. Digests that no
    configuration has any more are dropped. Returns 1 if a configuration is not as expected."""
    checked = read_record(record)
    outcomes = _told(compile_all(architectures=architectures, name_contains=name, recorded=checked))
    _write_record(record, checked, outcomes)
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


def _write_record(file: Path, checked: Mapping[int, set[str]], outcomes: Sequence[Outcome]) -> None:
    """Write what was checked before and is still shipped, and what the outcomes say."""
    compilations = shipped()
    names = {digest(each): each.name for each in compilations}
    found = record_of(compilations, outcomes)
    lines = []
    for key, name in names.items():
        architectures = [each for each in ARCHITECTURES if key in checked.get(each, ()) or key in found.get(each, ())]
        if architectures:
            lines.append(f"{json.dumps(key)}: {json.dumps({'name': name, 'architectures': architectures})}")
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def record_of(compilations: Sequence[Compilation], outcomes: Sequence[Outcome]) -> dict[int, set[str]]:
    """By architecture, the digests of configurations that are as expected there."""
    keys = {each.name: digest(each) for each in compilations}
    found: dict[int, set[str]] = {}
    for outcome in outcomes:
        if not outcome.violations:
            found.setdefault(outcome.architecture, set()).add(keys[outcome.name])
    return found


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
