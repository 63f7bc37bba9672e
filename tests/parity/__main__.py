"""`python -m tests.parity [NAME...]`: every architecture against transformers under all settings, which takes too long
for the gate. Prints a line for each variant; `--write` writes docs/parity.md. Exits with 1 if a check failed.
"""

import argparse
import multiprocessing
from collections.abc import Iterable
from pathlib import Path

from tests.engine.checkpoints import VARIANTS
from tests.parity.checks import CHECKS, check

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"
_INTRODUCTION = """# Every architecture against transformers

Written by `make parity`, which takes minutes and is not a part of `make test`. Tiny random checkpoints of
transformers' own classes, float32, C++ operators on CPU: 64 greedy tokens for prompts of 3, 29, 47 and 90
tokens side by side, one by one those of `transformers.generate`. Numbers: the largest difference of a logit
(at most 1e-4), preemptions, tokens found in the prefix cache, cuts of an answer that were continued from the
tokens before them.

"""


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="variants of tests/engine/checkpoints.py; all of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write docs/parity.md")
    options = parser.parse_args()
    found = []
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=8) as pool:
        for name, results in pool.imap(check, options.names or list(VARIANTS)):
            print(name, results, flush=True)
            found.append((name, results))
    if options.write:
        PAGE.write_text(_INTRODUCTION + table(found))
    return int(any("**" in cell for _, results in found for cell in results.values()))


def table(found: Iterable[tuple[str, dict[str, str]]]) -> str:
    """In Markdown, one row for each variant."""
    rows = [["architecture", "checkpoint", *CHECKS]]
    rows += [[f"`{VARIANTS[name][0]}`", name, *results.values()] for name, results in found]
    rows.insert(1, ["---"] * len(rows[0]))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    raise SystemExit(main())
