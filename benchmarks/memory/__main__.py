"""All memory experiments: python -m benchmarks.memory [--no-figures | --render]

Writes docs/memory.md, its figures, and results.json beside this file. Takes a few minutes; needs no GPU and no model.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.memory import experiments, figures, operations, report
from cli.bench.record import commit, machine

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-figures", action="store_true", help="leave the PNG files as they are")
    parser.add_argument("--render", action="store_true", help="only write docs/memory.md from the results that exist")
    options = parser.parse_args()
    page, results_file = ROOT / "docs" / "memory.md", Path(__file__).parent / "results.json"
    if options.render:
        page.write_text(report.render(json.loads(results_file.read_text())))
        return
    long_documents, runs = experiments.long_documents()
    results: dict[str, Any] = {
        "benchmark": "memory",
        "commit": commit(),
        "machine": machine(),
        "operations": operations.measure(),
        "memory_use": experiments.memory_use(),
        "waste_by_page_size": experiments.waste_by_page_size(),
        "long_documents": long_documents,
        "chat_waste": experiments.chat_waste(),
        "hit_rates": experiments.hit_rates(),
        "vision": experiments.vision(),
        "arena": experiments.arena(),
        "sharing": experiments.sharing(),
    }
    results_file.write_text(json.dumps(results, indent=1) + "\n")
    page.write_text(report.render(results))
    if not options.no_figures:
        figures.draw(results, runs, ROOT / "docs" / "figures")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
