"""The table of a full run, as markdown, beside the figures that were measured before this harness:
`python -m tests.faults.table RESULTS.jsonl`."""

import argparse
import json
from pathlib import Path
from typing import Any

_EARLIER = json.loads((Path(__file__).parent / "earlier_figures.json").read_text())
_COLUMNS = (
    "fault",
    "rounds",
    "votes",
    "lost",
    "doubled",
    "wrong",
    "silent cuts",
    "wrong tokens",
    "on broken battles",
    "5xx not 503",
    "other",
    "aborted per 1,000",
    "recovery p50 / p99 / max, s",
    "before",
)
_NAMED = ("votes_lost", "votes_doubled", "votes_wrong", "silent_cuts", "wrong_tokens", "votes_on_broken_battles")


def table(results: list[dict[str, Any]]) -> str:
    """One row a scenario, in the order of the results; a scenario that ran twice has two rows."""
    head = f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}"
    rows = "\n".join(f"| {' | '.join(_row(result))} |" for result in results)
    notes = f'"Before": {_EARLIER["source"]}. ' + _conditions(results)
    return f"{head}\n{rows}\n\n{notes}\n\n{_figures(results)}"


def _row(result: dict[str, Any]) -> list[str]:
    broken, counts = result["broken"], result["counts"]
    others = {name: number for name, number in broken.items() if number and name not in (*_NAMED, "server_errors")}
    aborted = 1000 * counts.get("battles_aborted", 0) / result["rounds"]
    times = result["recovery_s"]
    recovery = "-" if times["p50"] is None else f"{times['p50']:.2f} / {times['p99']:.2f} / {times['max']:.2f}"
    return [
        f"{result['what']} ({result['unit']})",
        f"{result['rounds']:,}",
        f"{counts.get('votes_acknowledged', 0):,}",
        *(str(broken[name]) for name in _NAMED),
        str(broken["server_errors"]),
        ", ".join(f"{name} {number}" for name, number in others.items()) or "0",
        f"{aborted:.1f}",
        recovery,
        _EARLIER["figures"].get(result["scenario"], "not measured"),
    ]


def _conditions(results: list[dict[str, Any]]) -> str:
    commits = sorted({result["commit"] for result in results})
    seeds = sorted({result["seed"] for result in results})
    total = sum(result["seconds"] for result in results)
    starts = sorted({result["starts"] for result in results})
    return (
        f"Commit {', '.join(commits)}; seed {', '.join(map(str, seeds))}; {results[0]['cores']} cores; "
        f"{total / 60:.0f} minutes; starts: {', '.join(starts)}."
    )


def _figures(results: list[dict[str, Any]]) -> str:
    """What only one scenario measures."""
    lines = [
        f"* {result['scenario']}: " + ", ".join(f"{name} {value}" for name, value in result["figures"].items())
        for result in results
        if result["figures"]
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table of a file of JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    lines = parser.parse_args().results.read_text().splitlines()
    print(table([json.loads(line) for line in lines if line.strip()]))


if __name__ == "__main__":
    main()
