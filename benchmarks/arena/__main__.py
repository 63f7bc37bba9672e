"""An arena with millions of votes: python -m benchmarks.arena [--votes N] [--json PATH]

Imports a file of votes into a running arena, exports them, and asks for boards. Everything is done by the commands and
routes that operators and visitors use; store and controller are processes of their own.
"""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.arena.boards import measure_crowd, measure_restart
from benchmarks.arena.bulk import fill_store, measure_export, measure_import, num_votes_on_board, write_votes
from benchmarks.arena.running import running
from cli.bench.record import document, write

_AIMS = {
    "client_peak_mb": 200,
    "health_p99_ms": 50,
    "others_board_p99_ms": 1000,
    "controller_to_first_board_s": 2,
}


def main() -> None:
    """Measure and write the document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arena", description=__doc__)
    parser.add_argument("--votes", type=int, default=2_000_000)
    parser.add_argument("--port", type=int, default=28_100)
    parser.add_argument("--folder", type=Path, help="Where to keep the arena; default: a temporary folder.")
    parser.add_argument(
        "--only",
        type=lambda text: set(text.split(",")),
        default={"import", "export", "crowd", "restart"},
        metavar="PARTS",
        help="Some of import,export,crowd,restart. Without import the votes go into the store before the controller "
        "starts, which takes a tenth of the time, and there is no journal.",
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agon-bench-") as scratch:
        folder: Path = options.folder or Path(scratch)
        rows: list[dict[str, Any]] = []
        settings = {"votes": options.votes, "controllers": 1, "aims": _AIMS}

        def keep(more: list[dict[str, Any]]) -> None:
            for row in more:
                rows.append({**row, "load": round(os.getloadavg()[0], 1)})
                print(rows[-1], flush=True)
            write(options.json, document("arena", settings, rows))

        source = folder / "votes.ndjson"
        folder.mkdir(parents=True, exist_ok=True)
        if not source.exists():
            write_votes(source, options.votes)
        is_imported = "import" in options.only
        fill = None if is_imported else lambda arena: fill_store(arena, source, options.votes)
        with running(folder / "arena", options.port, has_journal=is_imported, fill=fill) as arena:
            if is_imported:
                keep(asyncio.run(measure_import(arena, source, options.votes, kill=True)))
            asyncio.run(num_votes_on_board(arena, at_least=options.votes))
            if "export" in options.only:
                keep(asyncio.run(measure_export(arena, folder / "export.ndjson")))
                keep(asyncio.run(measure_export(arena, folder / "export.parquet")))
            if "crowd" in options.only:
                keep(asyncio.run(measure_crowd(arena)))
            if "restart" in options.only:
                keep(measure_restart(arena, options.votes))


if __name__ == "__main__":
    main()
