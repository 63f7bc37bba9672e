"""Votes to and from a running arena, through a store that is busy and connections that break.

What has no answer is tried again until nothing has succeeded for `patience_s`. Both directions bear that: an import
skips what the log has, an export goes on after the last vote that arrived.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from cli.arena.running_arena import check
from cli.errors import CliError
from cli.formats.log_files import NumberedLine
from wire.entry_ids import LOG_START
from wire.votes import ImportReply

PIECE_BYTES = 1_000_000  #: of one import request, which takes the controller a tenth of a second without texts
PATIENCE_S = 300.0

FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0
TEMPORARY = (429, 502, 503, 504)


@dataclass(frozen=True)
class Sent:
    """A piece of an import that the log has."""

    imported: int
    skipped: int  #: because the log had them already
    last_number: int  #: the number of its last line or row in the file


class Patience:
    """How long failures are borne: `patience_s` from the last success."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.reset()

    def reset(self) -> None:
        """Something has succeeded."""
        self._give_up_at = time.monotonic() + self._patience_s
        self._pause_s = FIRST_PAUSE_S

    def wait(self, reason: str, retry_after: str | None = None) -> None:
        """Pause before the next try. Raises CliError when it has been long enough."""
        stated_s = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
        pause_s = max(self._pause_s, min(stated_s, _LONGEST_PAUSE_S))
        if time.monotonic() + pause_s > self._give_up_at:
            raise CliError(f"given up after {self._patience_s:.0f} s without an answer: {reason}")
        time.sleep(pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def send_votes(client: httpx.Client, lines: Iterable[NumberedLine], patience_s: float) -> Iterator[Sent]:
    """Send lines in pieces; says after each piece what came of it. Raises CliError."""
    for piece in _pieces(lines):
        reply = _send_piece(client, piece, patience_s)
        yield Sent(reply.imported, reply.skipped, piece[-1].number)


def read_log(
    client: httpx.Client, after: str = LOG_START, *, conversations: bool = False, patience_s: float = PATIENCE_S
) -> Iterator[bytes]:
    """The lines of the log as the controller streams them, each once. Raises CliError."""
    patience = Patience(patience_s)
    last: bytes | None = None
    while True:
        query = {"after": after if last is None else id_of(last), "conversations": str(conversations).lower()}
        try:
            with client.stream("GET", "/arena/votes", params=query) as answer:
                if answer.status_code in TEMPORARY:
                    patience.wait(f"HTTP {answer.status_code}", answer.headers.get("retry-after"))
                    continue
                for line in _complete_lines(check(answer)):
                    last = line
                    patience.reset()
                    yield line
                return
        except httpx.TransportError as error:
            patience.wait(_reason(error))


def _pieces(lines: Iterable[NumberedLine]) -> Iterator[list[NumberedLine]]:
    """Entries of one row stay together, so that an import can go on after a row. What was read before an error is a
    piece, too."""
    piece: list[NumberedLine] = []
    size = 0
    try:
        for line in lines:
            if piece and size + len(line.text) > PIECE_BYTES and line.number != piece[-1].number:
                yield piece
                piece, size = [], 0
            piece.append(line)
            size += len(line.text) + 1
    except CliError:
        if piece:
            yield piece
        raise
    if piece:
        yield piece


def _send_piece(client: httpx.Client, piece: list[NumberedLine], patience_s: float) -> ImportReply:
    body = b"\n".join(line.text for line in piece)
    patience = Patience(patience_s)
    while True:
        try:
            answer = client.post("/arena/votes/import", content=body, headers={"Content-Type": "application/x-ndjson"})
        except httpx.TransportError as error:
            patience.wait(_reason(error))
            continue
        if answer.status_code in TEMPORARY:
            patience.wait(f"HTTP {answer.status_code}", answer.headers.get("retry-after"))
            continue
        try:
            return ImportReply.model_validate_json(check(answer).content)
        except CliError as error:
            if answer.status_code != 400:
                raise
            raise CliError(f"{error} (counted from line {piece[0].number} of the file)") from None


def _complete_lines(answer: httpx.Response) -> Iterator[bytes]:
    """Only a line feed ends a line: texts may hold any other break."""
    rest = b""
    for chunk in answer.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


def id_of(line: bytes) -> str:
    """The id in the log of the entry in this line."""
    values: dict[str, Any] = json.loads(line)
    return str(
        next(values[name] for name in ("vote_id", "judgement_id", "feedback_id", "label_id") if values.get(name))
    )


def _reason(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__
