"""Files of votes in a public schema with odd rows at known places.

`python -m tests.cli.transfer.planted 100000` imports one into an arena of its own, twice, and compares counts and
lines.
"""

import asyncio
import json
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from cli.arena.running_arena import arena_client
from cli.formats.schemas import SourceSchema
from cli.transfer.imports import Progress, import_file
from cli.transfer.left_out import LeftOut
from tests.controller.support.arena import ADMIN_TOKEN, make_settings, running_arena
from tests.controller.support.running import running_store

_MODELS = ("finch", "robin", "raven", "wren")
_ODD: tuple[dict[str, Any] | str, ...] = (
    {"winner": "nobody"}, {"winner": None}, {"model_b": None}, {"model_a": "raven", "model_b": "raven"},
    {"tstamp": "late"}, {"turn": 10**30}, {"judge": "\ud800"}, '{"question_id": "cut', "[]", "no JSON at all",
)  # fmt: skip


def write_votes(path: Path, num_rows: int, seed: int) -> tuple[int, list[int]]:
    """Write rows of chatbot_arena_conversations; returns how many are votes, and the lines of those that are none."""
    rng = Random(seed)
    odd: list[int] = []
    with open(path, "w") as file:
        for line in range(1, num_rows + 1):
            a, b = rng.sample(_MODELS, 2)
            row: dict[str, Any] = {
                "question_id": f"q{line}", "model_a": a, "model_b": b, "judge": f"user_{rng.randrange(500)}",
                "winner": rng.choice(("model_a", "model_b", "tie", "tie (bothbad)")), "turn": rng.randint(1, 4),
                "anony": True, "language": "English", "tstamp": 1.7e9 + line,
            }  # fmt: skip
            text = json.dumps(row)
            if rng.random() < 0.01:
                odd.append(line)
                change = rng.choice(_ODD)
                text = change if isinstance(change, str) else json.dumps({**row, **change})
            file.write(text + "\n")
    return num_rows - len(odd), odd


async def import_twice(num_rows: int, seed: int = 1) -> None:
    """Raises AssertionError unless both imports count right and name the right lines."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "votes.jsonl"
        num_votes, odd = write_votes(path, num_rows, seed)
        with running_store(Path(folder) / "store") as store:
            async with running_arena(make_settings(store.url, "test:planted")) as arena:
                for expected in ((num_votes, 0), (0, num_votes)):
                    left_out = LeftOut(path)
                    done = await asyncio.to_thread(_import, arena.url, path, left_out)
                    lines = [json.loads(line)["line"] for line in left_out.path.read_text().splitlines()]
                    assert (done.imported, done.skipped, left_out.count) == (*expected, len(odd))
                    assert lines == odd
                    print(f"{done.imported} imported, {done.skipped} skipped, {left_out}")


def _import(url: str, path: Path, left_out: LeftOut) -> Progress:
    with arena_client(url, ADMIN_TOKEN) as client:
        return import_file(client, path, SourceSchema.AUTO, patience_s=60, left_out=left_out)


if __name__ == "__main__":
    asyncio.run(import_twice(int(sys.argv[1])))
