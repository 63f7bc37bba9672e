from ipaddress import ip_network

import pytest
from fastapi import Request

from controller.access.addresses import Addresses
from wire.proxies import PROXY_TOKEN_HEADER

TOKEN = "proxy-token-for-tests"
ADDRESSES = Addresses((ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8")), "")
BY_DEFAULT = Addresses((), TOKEN)
BEHIND_A_PROXY = Addresses((ip_network("10.0.0.1"),), TOKEN)


def _request(peer: str | None, *forwarded: str, token: str | None = None) -> Request:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    if token is not None:
        headers.append((PROXY_TOKEN_HEADER.lower().encode(), token.encode()))
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


@pytest.mark.parametrize(
    ("addresses", "peer", "forwarded", "token", "identity"),
    [
        # By default only the web UI is believed, wherever it runs; a local process is not.
        (BY_DEFAULT, "127.0.0.1", ("198.51.100.1",), None, "127.0.0.1"),
        (BY_DEFAULT, "127.0.0.1", ("198.51.100.1",), "", "127.0.0.1"),
        (BY_DEFAULT, "127.0.0.1", ("198.51.100.1",), TOKEN + "x", "127.0.0.1"),
        (BY_DEFAULT, "203.0.113.7", ("198.51.100.1",), None, "203.0.113.7"),
        (BY_DEFAULT, "127.0.0.1", ("198.51.100.1",), TOKEN, "198.51.100.1"),
        (BY_DEFAULT, "172.18.0.5", ("198.51.100.1",), TOKEN, "198.51.100.1"),
        (BY_DEFAULT, "172.18.0.5", ("127.0.0.1",), TOKEN, "127.0.0.1"),
        (BY_DEFAULT, "172.18.0.5", (), TOKEN, "172.18.0.5"),
        (BY_DEFAULT, "172.18.0.5", ("1.1.1.1, 198.51.100.1",), TOKEN, "198.51.100.1"),  # the last hop and no more
        # The token speaks for the peer only, a network for every hop that lies in it.
        (BEHIND_A_PROXY, "10.0.0.1", ("198.51.100.1",), None, "198.51.100.1"),
        (BEHIND_A_PROXY, "10.0.0.2", ("198.51.100.1",), None, "10.0.0.2"),
        (BEHIND_A_PROXY, "172.18.0.5", ("198.51.100.1, 10.0.0.1",), TOKEN, "198.51.100.1"),
    ],
)
def test_the_web_ui_is_believed_for_its_token(
    addresses: Addresses, peer: str, forwarded: tuple[str, ...], token: str | None, identity: str
) -> None:
    assert addresses.of(_request(peer, *forwarded, token=token)).identity == identity


def test_no_token_is_accepted_where_none_is_set() -> None:
    for token in ("", "anything"):
        request = _request("127.0.0.1", "198.51.100.1", token=token)
        assert Addresses((), "").of(request).identity == "127.0.0.1"


@pytest.mark.parametrize(
    ("own_token", "shown", "event", "setting"),
    [
        (TOKEN, None, "forwarded_address_ignored", "AGON_TRUSTED_PROXIES"),
        ("", TOKEN, "proxy_token_not_set", "AGON_PROXY_TOKEN"),
        (TOKEN, TOKEN + "x", "proxy_token_wrong", "AGON_PROXY_TOKEN"),
    ],
)
def test_an_ignored_header_is_logged_once_with_the_setting(
    own_token: str, shown: str | None, event: str, setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = Addresses((), own_token)
    for _ in range(3):
        addresses.of(_request("10.0.0.9", "198.51.100.1", token=shown))
    if own_token:
        addresses.of(_request("10.0.0.9", "198.51.100.1", token=TOKEN))

    assert [record.getMessage() for record in caplog.records] == [event]
    assert setting in caplog.records[0].fields["hint"]  # type: ignore[attr-defined]


def test_an_invented_header_of_a_visitor_does_not_hide_the_warning_of_a_web_ui(
    caplog: pytest.LogCaptureFixture,
) -> None:
    addresses = Addresses((), TOKEN)
    addresses.of(_request("203.0.113.7", "198.51.100.1"))
    addresses.of(_request("10.0.0.9", "198.51.100.1", token="another token of a web UI"))
    assert [record.getMessage() for record in caplog.records] == ["forwarded_address_ignored", "proxy_token_wrong"]


def test_loopback_and_unix_sockets_are_local_unless_they_forward() -> None:
    assert ADDRESSES.of(_request("127.0.0.1")).is_local
    assert ADDRESSES.of(_request(None)).is_local
    assert not ADDRESSES.of(_request("127.0.0.1", "198.51.100.1")).is_local
    assert not BY_DEFAULT.of(_request("127.0.0.1", "198.51.100.1")).is_local
    assert not BY_DEFAULT.of(_request("127.0.0.1", "127.0.0.1", token=TOKEN)).is_local
