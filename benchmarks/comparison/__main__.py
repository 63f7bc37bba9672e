"""Measures Agon where FastChat was measured (docs/comparison.md) and prints one JSON object.

Starts two arenas one after the other: one with SmolLM2-135M's shape and random weights for the stream figures, one with
the demo models for faults, votes and malformed requests.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.comparison.arena import running_arena
from benchmarks.comparison.faults import controller_death, ten_votes, worker_death
from benchmarks.comparison.malformed import measure_malformed
from benchmarks.comparison.streams import measure_streams
from benchmarks.models import SMOL_135M, write_model
from cli.bench.record import commit, machine, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["streams", "behaviour"], help="measure one half")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"commit": commit(), "machine": machine()}
    with tempfile.TemporaryDirectory(prefix="agon-bench-") as folder:
        if arguments.only != "behaviour":
            result["streams"] = _streams(Path(folder))
        if arguments.only != "streams":
            result["behaviour"] = _behaviour(Path(folder))
    write(None, result)
    if arguments.json:
        write(arguments.json, result)


def _streams(folder: Path) -> dict[str, Any]:
    model = write_model(folder / "smol-135m", SMOL_135M)
    threads = str(os.cpu_count() or 1)
    settings = {"AGON_LOAD_FORMAT": "dummy"}
    options = ("--threads-per-worker", threads)
    with running_arena(folder / "streams", [f"smol-135m={model}"], *options, settings=settings) as arena:
        return {"started_s": round(arena.started_s, 1), "rows": measure_streams(arena.url, "smol-135m")}


def _behaviour(folder: Path) -> dict[str, Any]:
    settings = {"AGON_VOTE_RATE_BURST": "100"}  # ten votes and some
    with running_arena(folder / "behaviour", [], settings=settings) as arena:
        return {
            "started_s": round(arena.started_s, 1),
            "malformed": measure_malformed(arena.url, "raven"),
            "ten_votes": ten_votes(arena.url),
            "worker_death": worker_death(arena, "raven"),
            "controller_death": controller_death(arena, "raven"),
        }


if __name__ == "__main__":
    main()
