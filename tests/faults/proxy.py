"""A TCP proxy that breaks connections on request: between controllers and the store, controllers and workers, web UI
and controllers.

It forwards bytes and knows no protocol. A fault holds for one direction or both, for every connection, until it is
changed. One event loop, that of the harness.
"""

import asyncio
import contextlib
import random
import socket
import struct
from dataclasses import dataclass, replace

_CHUNK_BYTES = 65_536
_SLOW_PIECE_BYTES = 64
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Link:
    """What happens to bytes in one direction.

    `is_dropping` throws them away, as a network does that lost the route; with `is_half_open` they wait in the proxy
    until the fault is over. `bytes_per_s` 0 is no limit. In the share `corrupted_share` of pieces one byte is changed.
    """

    delay_s: float = 0.0
    bytes_per_s: int = 0
    is_dropping: bool = False
    is_half_open: bool = False
    corrupted_share: float = 0.0


CLEAR = Link()


class FaultProxy:
    """Listens on a port of 127.0.0.1 and forwards to `target`, a port of 127.0.0.1 or the path of a Unix socket."""

    def __init__(self, port: int, target: int | str, rng: random.Random) -> None:
        self.port = port
        self._target = target
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self.forward = CLEAR  #: from the side that connects
        self.backward = CLEAR
        self.num_resets = 0
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Stop to listen, and reset what is open."""
        if self._server is not None:
            self._server.close()
        self.reset_all()
        await asyncio.sleep(0)

    def set(self, *, forward: Link | None = None, backward: Link | None = None) -> None:
        """Change the fault of one direction or both; None leaves a direction as it is."""
        self.forward = forward if forward is not None else self.forward
        self.backward = backward if backward is not None else self.backward
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def clear(self) -> None:
        """Forward everything again. Bytes that were dropped stay lost, so those connections are reset."""
        was_dropping = self.forward.is_dropping or self.backward.is_dropping
        self.set(forward=CLEAR, backward=CLEAR)
        if was_dropping:
            self.reset_all()

    @property
    def num_open(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    def reset_all(self) -> int:
        """Send RST on both sides of every connection; returns how many there were."""
        connections = list(self._connections)
        for connection in connections:
            connection.reset()
        self.num_resets += len(connections)
        return len(connections)

    def reset_one(self, rng: random.Random) -> bool:
        """Reset one connection, drawn at random; False if none is open."""
        if not self._connections:
            return False
        rng.choice(sorted(self._connections, key=lambda connection: connection.number)).reset()
        self.num_resets += 1
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if isinstance(self._target, int):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            else:
                far_reader, far_writer = await asyncio.open_unix_connection(self._target)
        except OSError:  # as if there were no proxy: the connection is refused
            _abort(writer)
            return
        connection = _Connection(writer, far_writer)
        self._connections.add(connection)
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer, "forward")),
            asyncio.create_task(self._pump(far_reader, writer, "backward")),
        ]
        try:
            await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            self._connections.discard(connection)
            for end in (writer, far_writer):
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._pass_on(data, writer, direction)
            if writer.can_write_eof():
                writer.write_eof()
            return
        _abort(writer)

    async def _pass_on(self, data: bytes, writer: asyncio.StreamWriter, direction: str) -> None:
        link: Link = getattr(self, direction)
        while link.is_half_open:
            await self._changed.wait()
            link = getattr(self, direction)
        if link is CLEAR:
            writer.write(data)
            await writer.drain()
            return
        if link.is_dropping:
            return
        if link.delay_s:
            await asyncio.sleep(link.delay_s)
        if link.corrupted_share and self._rng.random() < link.corrupted_share:
            place = self._rng.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ (1 << self._rng.randrange(8))]) + data[place + 1 :]
        size = _SLOW_PIECE_BYTES if link.bytes_per_s else len(data)
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            await writer.drain()
            if link.bytes_per_s and getattr(self, direction) == link:
                await asyncio.sleep(size / link.bytes_per_s)


class _Connection:
    """Both ends of one proxied connection."""

    _next_number = 0

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._ends = (near, far)
        _Connection._next_number += 1
        self.number = _Connection._next_number

    def reset(self) -> None:
        for end in self._ends:
            _abort(end)


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN, and without what is still in buffers."""
    peer = writer.get_extra_info("socket")
    if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
    writer.transport.abort()


def slow(bytes_per_s: int) -> Link:
    """A link with little bandwidth."""
    return replace(CLEAR, bytes_per_s=bytes_per_s)
