from ipaddress import ip_network

import pytest
from fastapi import Request

from controller.access.addresses import Addresses

ADDRESSES = Addresses((ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8")))


def _request(peer: str | None, *forwarded: str) -> Request:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    client = None if peer is None else (peer, 1234)
    return Request({"type": "http", "headers": headers, "client": client})


@pytest.mark.parametrize(
    ("peer", "forwarded", "identity"),
    [
        ("203.0.113.7", (), "203.0.113.7"),
        ("203.0.113.7", ("198.51.100.1",), "203.0.113.7"),  # the peer is no trusted proxy
        ("127.0.0.1", ("198.51.100.1",), "198.51.100.1"),
        ("10.0.0.2", ("198.51.100.1, 10.0.0.3",), "198.51.100.1"),
        ("10.0.0.2", ("1.1.1.1, 198.51.100.1",), "198.51.100.1"),  # what a client claims stands left of what we saw
        ("10.0.0.2", ("1.1.1.1", "198.51.100.1"), "198.51.100.1"),
        ("127.0.0.1", ("nonsense",), "127.0.0.1"),
        ("127.0.0.1", ("198.51.100.1, nonsense",), "127.0.0.1"),
        ("127.0.0.1", ("",), "127.0.0.1"),
        ("2001:db8::1:2:3:4", (), "2001:db8::/64"),
        ("127.0.0.1", ("2001:db8:0:0:9::1",), "2001:db8::/64"),
        ("::ffff:203.0.113.7", (), "203.0.113.7"),
    ],
)
def test_forwarded_addresses_count_as_far_as_proxies_are_trusted(
    peer: str, forwarded: tuple[str, ...], identity: str
) -> None:
    assert ADDRESSES.of(_request(peer, *forwarded)).identity == identity


def test_loopback_and_unix_sockets_are_local() -> None:
    assert ADDRESSES.of(_request("127.0.0.1")).is_local
    assert ADDRESSES.of(_request(None)).is_local
    assert not ADDRESSES.of(_request("127.0.0.1", "198.51.100.1")).is_local
