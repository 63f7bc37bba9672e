"""Voters whom a proxy has signed in: only a trusted proxy may name them."""

from typing import Any

import pytest

from tests.controller.support.arena import PROXY_TOKEN, Arena
from wire.proxies import PROXY_TOKEN_HEADER, forwarded_user

TRUSTED = {PROXY_TOKEN_HEADER: PROXY_TOKEN}


async def _begin(arena: Arena, headers: Any) -> tuple[int, str]:
    """Status, and id of the battle or code of the refusal."""
    if not arena.workers:
        await arena.add_two()
    response = await arena.client.post("/arena/battles", json={"mode": "anonymous"}, headers=headers)
    body = response.json()
    assert "set-cookie" not in response.headers
    return response.status_code, body["id"] if response.status_code == 201 else body["error"]["code"]


async def test_a_name_from_the_proxy_is_a_voter_at_every_address(open_arena: Any) -> None:
    async with open_arena(identity="header") as arena:
        for header, address in (("X-Forwarded-User", "203.0.113.9"), ("X-Auth-Request-User", "198.51.100.3")):
            status, battle_id = await _begin(arena, {**TRUSTED, header: "grace", "X-Forwarded-For": address})
            assert status == 201
            await arena.turn(battle_id)
            other = await arena.vote(battle_id, headers={**TRUSTED, header: "bob", "X-Forwarded-For": address})
            own = await arena.vote(battle_id, headers={**TRUSTED, header: "grace", "X-Forwarded-For": "192.0.2.1"})
            assert (other.status_code, own.status_code) == (403, 200)

        first, then = await arena.vote_log()
        assert first["voter"] == then["voter"]
        assert first["identity"] == "header"
        assert "grace" not in str(first)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Forwarded-User": "grace"},
        {"X-Forwarded-User": "grace", PROXY_TOKEN_HEADER: "guessed"},
        {**TRUSTED, "X-Forwarded-User": ""},
        {**TRUSTED, "X-Forwarded-User": "x" * 257},
        {**TRUSTED, "X-Forwarded-User": "grace", "X-Auth-Request-User": "bob"},
        [*TRUSTED.items(), ("X-Forwarded-User", "grace"), ("X-Forwarded-User", "bob")],
    ],
    ids=["no name", "no token", "wrong token", "empty", "long", "two headers", "two values"],
)
async def test_who_is_not_named_by_a_trusted_proxy_is_no_voter(open_arena: Any, headers: Any) -> None:
    async with open_arena(identity="header") as arena:
        assert await _begin(arena, headers) == (403, "voter_not_known")


async def test_a_named_network_is_trusted(open_arena: Any) -> None:
    async with open_arena(identity="header", trusted_proxies=("127.0.0.1/32",), proxy_token="") as arena:
        assert (await _begin(arena, {"X-Forwarded-User": "grace"}))[0] == 201


async def test_elsewhere_a_name_says_nothing(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    await arena.turn(battle["id"])
    await arena.vote(battle["id"], headers={**TRUSTED, "X-Forwarded-User": "grace"})
    [record] = await arena.vote_log()
    assert record["identity"] == "address"


def test_a_name_outside_of_ascii_is_the_same_after_each_hop() -> None:
    first = forwarded_user(["J\u00c3\u00bcrgen 100%"])  # UTF-8 bytes, as servers decode headers
    assert first == "J%C3%BCrgen 100%"
    assert forwarded_user([first]) == first
