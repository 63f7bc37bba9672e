"""Tables of docs/performance.md, in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; None is an empty cell."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def times(larger: float | None, smaller: float | None) -> str | None:
    """How many times as fast; None where a figure is missing."""
    return f"{larger / smaller:.2f} x as fast" if larger and smaller else None
