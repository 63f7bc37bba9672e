"""A port for a process that a test starts."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port that the kernel gives to no other process inside the block: it is bound here, without listening. The
    process under test can still bind it, because both set SO_REUSEADDR, as asyncio's servers do."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
