"""Server-sent events (WHATWG HTML, section 9.2): an encoder and an incremental decoder. Bytes in, bytes out, no I/O."""

import re
from dataclasses import dataclass

KEEP_ALIVE = b": keep-alive\n\n"  #: a comment, ignored by every client; keeps proxies from closing a quiet stream
_LINE_BREAK = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event. `data` may hold line breaks; `event` and `id` may not."""

    data: str
    event: str = "message"
    id: str | None = None


def encode(event: SseEvent) -> bytes:
    """The event as bytes, with the empty line that ends it."""
    lines = []
    if event.id is not None:
        lines.append(f"id: {event.id}")
    if event.event != "message":
        lines.append(f"event: {event.event}")
    lines.extend(f"data: {line}" for line in event.data.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return ("\n".join(lines) + "\n\n").encode()


class SseDecoder:
    """Incremental decoder of one stream. Mutable; used by one reader."""

    def __init__(self) -> None:
        self._buffer = b""
        self._data: list[str] = []
        self._event = "message"
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Decode the next bytes of the stream, cut anywhere; returns the events that are complete now."""
        events: list[SseEvent] = []
        for line in self._lines(self._buffer + chunk):
            event = self._take_line(line.decode("utf-8", errors="replace"))
            if event is not None:
                events.append(event)
        return events

    def _lines(self, text: bytes) -> list[bytes]:
        """Complete lines; the rest is buffered. A carriage return at the end of `text` may be the first half of a line
        break, so it is buffered too."""
        if b"\r" not in text:
            lines = text.split(b"\n")
        else:
            half = text.endswith(b"\r")
            lines = _LINE_BREAK.split(text[:-1] if half else text)
            lines[-1] += b"\r" if half else b""
        self._buffer = lines.pop()
        return lines

    def _take_line(self, line: str) -> SseEvent | None:
        if not line:
            event = SseEvent("\n".join(self._data), self._event, self._id) if self._data else None
            self._data, self._event = [], "message"
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id":
            self._id = value
        return None
