"""A port for a process that a test starts."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Nobody else is given it meanwhile, neither to listen on nor as a client's: it is bound here and not listened on.
    The process may take it all the same, since both set SO_REUSEADDR, as asyncio's servers do."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
