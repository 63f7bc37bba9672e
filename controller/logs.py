"""Logs: one JSON object per line, one line per step of a life cycle.

No prompt, answer, address or key may be a field. Battle ids are bearer secrets until the vote: log `short(battle_id)`.
"""

import json
import logging
import sys
import time
from typing import Any


def log_event(logger: logging.Logger, event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Write one event; `fields` must be JSON values."""
    logger.log(level, event, extra={"fields": fields})


def short(identifier: str) -> str:
    """Enough of an id to find the lines that belong together, too little to use it."""
    return identifier[:8]


class JsonFormatter(logging.Formatter):
    """Traces of defects keep their stack, which holds file names and lines but no values."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(level: str) -> None:
    """Send every log line of this process to standard output; called by `python -m controller` only."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)  # httpx logs URLs, uvicorn.access logs addresses
