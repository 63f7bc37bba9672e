"""Lines of the services' logs that belong to one conversation or request. Each line is a JSON object
(service_kit/logs.py)."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Fields of a line by which it is found, and those that need not be shown.
_NAMES = ("x_request_id", "request_id", "battle", "chat")
_HIDDEN = {"ts", "level", "event", "logger", "at", *_NAMES}


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: when (UTC, as text), whose log, what."""

    time: str
    process: str
    text: str
    is_trouble: bool


def lines_of(folder: Path, names: Iterable[str]) -> list[LogLine]:
    """The lines in all `*.log` files of a folder that name one of `names`: ids of requests, or the first eight
    characters of a conversation's. Oldest first. Lines that are no JSON are passed over."""
    wanted = set(names)
    found = [
        line
        for path in sorted(folder.glob("*.log*"))
        for content in _objects(path)
        if wanted.intersection(str(content.get(name)) for name in _NAMES) and (line := _line(path, content))
    ]
    return sorted(found, key=lambda line: line.time)


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("{"):
                try:
                    content = json.loads(line)
                except ValueError:
                    continue
                if isinstance(content, dict):
                    yield content


def _line(path: Path, content: dict[str, Any]) -> LogLine:
    fields = " ".join(f"{name}={value}" for name, value in content.items() if name not in _HIDDEN and value is not None)
    return LogLine(
        time=str(content.get("ts", "")),
        process=path.name.partition(".log")[0],
        text=f"{content.get('event', '')} {fields}".strip(),
        is_trouble=content.get("level") in ("warning", "error"),
    )
