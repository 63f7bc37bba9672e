"""Ports of this machine: which are free."""

import socket
from collections.abc import Collection

from cli.errors import CliError


def why_taken(host: str, port: int) -> str | None:
    """Why nothing can listen on the port now; None if it is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except (OSError, OverflowError) as error:
            return getattr(error, "strerror", None) or str(error)
    return None


def free_port(host: str, first: int, taken: Collection[int] = ()) -> int:
    """The first free port from `first` on that is not in `taken`. Raises CliError."""
    for port in range(first, 65536):
        if port not in taken and why_taken(host, port) is None:
            return port
    raise CliError(f"no port from {first} on is free.")
