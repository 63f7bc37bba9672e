"""Which addresses are this machine's own, and which one another machine would see. Resolves names; sends nothing."""

import socket
from ipaddress import ip_address

from service_kit.origins import is_loopback


def is_this_machine(host: str) -> bool:
    """Whether `host`, a name or an address, is this machine. A name that cannot be resolved is none of its own."""
    if is_loopback(host):
        return True
    try:
        found = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return any(_can_bind(family, address) for family, _, _, _, address in found)


def source_address(host: str, port: int) -> str:
    """The address of this machine that a host sees when this machine connects to it. Raises OSError: the name cannot be
    resolved, or there is no route."""
    family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # chooses a route; no packet is sent
        return str(probe.getsockname()[0])


def is_loopback_host(host: str) -> bool:
    """Whether a host of a URL is this machine for every machine that reads the URL."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return is_loopback(host)


def _can_bind(family: int, address: tuple[object, ...]) -> bool:
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind(address)
        except (OSError, OverflowError):
            return False
    return True
