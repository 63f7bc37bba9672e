"""Results, figure and table of the opposed load: python -m benchmarks.memory.opposed_report

Writes opposed.json beside this file and docs/figures/opposed_load.png; `python -m benchmarks.memory` puts the table
into docs/memory.md. Takes some minutes.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.memory import opposed
from cli.bench.record import commit, machine

_HERE = Path(__file__).parent
_FIGURE = _HERE.parents[1] / "docs" / "figures" / "opposed_load.png"
_GIB = 2**30


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    found = {name: opposed.opposed(name) for name in opposed.EXPERIMENTS}
    series = {name: entry.pop("series") for name, entry in found.items()}
    _draw(series)
    results: dict[str, Any] = {"commit": commit(), "machine": machine(), **found, "seldom": opposed.seldom()}
    (_HERE / "opposed.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def _draw(series: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(1, len(series), figsize=(11, 3.5))
    for axes, (name, entry) in zip(grid, series.items(), strict=True):
        held = [[num_bytes / _GIB for num_bytes in column] for column in entry["held"].values()]
        axes.stackplot(entry["times"], held, labels=list(entry["held"]))
        axes.axhline(opposed.EXPERIMENTS[name][1] / _GIB, color="black", linewidth=0.8)
        axes.set(xlabel="simulated seconds", ylabel="GiB held", title=f"One pool, {name}")
        axes.legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(_FIGURE, dpi=110)


if __name__ == "__main__":
    main()
