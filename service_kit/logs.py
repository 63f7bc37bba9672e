"""Logs of every service: one JSON object per line on stderr, one line per step of a life cycle.

Keys of every line: `ts` (UTC, milliseconds), `level`, `event` (a stable name; a library's line has its message here),
`logger` (the module), and `x_request_id` where it was written for a request. Then the event's own fields. A line about
an exception also has `error` (its type) and `at` (the innermost frames as file:line), without the exception's message,
which may quote what a user wrote.

No prompt, answer, client address or key may be a field. Battle ids are bearer secrets until the vote: log
`short(battle_id)`.
"""

import json
import logging
import sys
import time
import traceback
from collections.abc import Iterable
from typing import Any

from service_kit.request_context import current_request_id

_MAX_FRAMES = 6


def log_event(
    logger: logging.Logger,
    event: str,
    level: int = logging.INFO,
    *,
    exc_info: bool | BaseException = False,
    **fields: Any,
) -> None:
    """Write one event. `fields` must be JSON values, none of them private."""
    logger.log(level, event, exc_info=exc_info, extra={"fields": fields})


def short(identifier: str) -> str:
    """The beginning of an id: enough to find its log lines, too little to use the id."""
    return identifier[:8]


class JsonLines(logging.Formatter):
    """Formats a record as the one line that the module docstring describes."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its line break."""
        line: dict[str, Any] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **getattr(record, "fields", {}),
        }
        if (request_id := current_request_id()) is not None:
            line["x_request_id"] = request_id
        if record.exc_info:
            kind, _, trace = record.exc_info
            line["error"] = kind.__name__ if kind is not None else None
            line["at"] = [
                f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
                for frame in traceback.extract_tb(trace)[-_MAX_FRAMES:]
            ]
        return json.dumps(line, default=str)


def configure_logging(packages: Iterable[str], level: str = "INFO") -> None:
    """Send the log of this process to stderr: of `packages` from `level` on, of all others from WARNING on.

    Called once, by the main function of a service. Tests and embedding programs keep their own handlers.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for package in packages:
        logging.getLogger(package).setLevel(level)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)  # its lines hold client addresses
