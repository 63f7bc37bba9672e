"""The rows that an import left out, as JSON lines in a file beside the one that is imported."""

import json
from pathlib import Path

from cli.errors import CliError
from cli.formats.rows import STANDARD_INPUT, RawRow

SHOWN_LINES = 10  #: numbers that a message names


class LeftOut:
    """Rows that are no votes, each with its number and the reason. The file is there if there is such a row."""

    def __init__(self, source: Path) -> None:
        name = "standard-input" if str(source) == STANDARD_INPUT else source.name
        self.path = source.with_name(f"{name}.left-out.ndjson")
        self.count = 0
        self.first_lines: list[int] = []

    def begin(self, *, after: int) -> None:
        """Begin anew, or go on: what an interrupted run left out of the first `after` rows stays. Raises CliError."""
        kept: list[bytes] = []
        try:
            if after and self.path.exists():
                with open(self.path, "rb") as file:
                    kept = [line for line in file if line.endswith(b"\n") and json.loads(line)["line"] <= after]
            self.path.unlink(missing_ok=True)
            for line in kept:
                self._write(json.loads(line)["line"], line)
        except (OSError, ValueError) as error:
            raise CliError(f"cannot keep what is left out in {self.path}: {error}") from None

    def add(self, raw: RawRow, reason: str) -> None:
        """Keep a row. Raises CliError."""
        row = raw.content.decode(errors="replace") if isinstance(raw.content, bytes) else raw.content
        line = json.dumps({"line": raw.number, "reason": reason, "row": row}, default=str)
        try:
            self._write(raw.number, line.encode() + b"\n")
        except OSError as error:
            raise CliError(f"cannot write {self.path}: {error.strerror}.") from None

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.first_lines))
        more = ", ..." if self.count > len(self.first_lines) else ""
        return f"{self.count} left out (line {shown}{more}): they are in {self.path}" if self.count else "0 left out"

    def _write(self, number: int, line: bytes) -> None:
        with open(self.path, "ab") as file:
            file.write(line)
        self.count += 1
        if len(self.first_lines) < SHOWN_LINES:
            self.first_lines.append(number)
