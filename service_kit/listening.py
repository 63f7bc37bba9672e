"""Listening sockets whose connections are accepted as fast as they come."""

import socket

BACKLOG = 2048  #: connections that wait to be accepted; the kernel drops further ones, and clients try again after 1 s
ACCEPTS = 32  #: connections that the event loop accepts in one turn


def listen(host: str, port: int) -> socket.socket:
    """Bind `host` and `port` (0: any) and listen. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Every token is a small write: Nagle's algorithm would hold it for up to 40 ms, until the one before is
    # acknowledged. asyncio sets TCP_NODELAY only for sockets whose protocol is named; connections inherit this one.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def descriptors(listener: socket.socket) -> list[socket.socket]:
    """`listener` and copies of its descriptor, for `uvicorn.Server.serve(sockets=...)`.

    uvloop accepts one connection of each descriptor in a turn of the event loop. A turn of a busy loop takes
    milliseconds: with a single descriptor clients would wait in the backlog, where nothing can refuse them.
    """
    return [listener, *(listener.dup() for _ in range(ACCEPTS - 1))]
