"""One fuzzed request: the bytes that are sent, and whether an answer is due."""

from dataclasses import dataclass

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Case:
    """`pieces` are sent one after the other. `is_whole`: a complete request, which must be answered in time; bytes that
    may be anything are not."""

    kind: str
    pieces: tuple[bytes, ...]
    is_whole: bool = True


def request_bytes(method: str, target: str, headers: Headers, body: bytes | None) -> bytes:
    """A request as it is sent, with `Connection: close`. Nothing is escaped or checked."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if not any(name == "Host" for name, _ in headers):
        lines.append("Host: 127.0.0.1")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("Connection: close")
    return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + (body or b"")
