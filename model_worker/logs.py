"""Structured logs: one JSON object per line on stderr, an event name and plain fields.

Never in a log: prompts, answers, client addresses, keys. So an unexpected exception is logged by type and place,
without its message, which may quote what a user wrote.
"""

import json
import logging
import sys
import time
import traceback
from typing import Any

_LOGGER = logging.getLogger("agon.worker")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": getattr(record, "event", None) or record.getMessage(),
        }
        fields.update(getattr(record, "fields", {}))
        if record.exc_info:
            kind, _, trace = record.exc_info
            fields["error"] = kind.__name__ if kind is not None else None
            frames = traceback.extract_tb(trace)[-6:]
            fields["at"] = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames]
        return json.dumps(fields)


def configure_logs(level: int = logging.INFO) -> None:
    """Called once by the process's main function; tests and embedding programs keep their own handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _LOGGER.setLevel(level)
    for part in ("engine.runner", "engine.kernels"):  # what a start does, nothing of a request
        logging.getLogger(part).setLevel(level)


def log_event(event: str, *, level: int = logging.INFO, exc_info: bool = False, **fields: Any) -> None:
    """Log `event` with its fields; the caller vouches that none of them is private."""
    _LOGGER.log(level, event, exc_info=exc_info, extra={"event": event, "fields": fields})
