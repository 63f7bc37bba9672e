"""Who may vote on a battle, and as whom: cookies, addresses, and clients that keep neither."""

import re
from dataclasses import replace
from typing import Any

import pytest

from controller.access.addresses import ClientAddress
from controller.access.identity import Visitor
from controller.battles.voters import Voters
from tests.controller.support.arena import PROXY_TOKEN, Arena, visitor
from wire.voters import NEW_COOKIE_HEADER, VoterCookies

HOME, TRAIN = "203.0.113.9", "198.51.100.3"
COOKIES = VoterCookies(PROXY_TOKEN)


def _cookie(text: str) -> dict[str, str]:
    return {"Cookie": f"{COOKIES.name}={text}"}


async def _begin(arena: Arena, headers: dict[str, str]) -> tuple[str, str | None]:
    """Id of a new battle with one answered turn, and the Set-Cookie of its first answer."""
    if not arena.workers:
        await arena.add_two()
    response = await arena.client.post("/arena/battles", json={"mode": "anonymous"}, headers=headers)
    assert response.status_code == 201
    battle_id = response.json()["id"]
    await arena.turn(battle_id)
    return battle_id, response.headers.get("set-cookie")


def _text_in(set_cookie: str | None) -> str:
    found = re.match(rf"{COOKIES.name}=([^;]+); Max-Age=34560000; Path=/; HttpOnly; SameSite=Lax$", set_cookie or "")
    assert found is not None, set_cookie
    return found[1]


async def test_the_owner_of_a_battle_keeps_it_at_another_address(arena: Arena) -> None:
    cookie = _cookie(COOKIES.new())
    battle_id, given = await _begin(arena, visitor(HOME) | cookie)

    assert given is None
    assert (await arena.vote(battle_id, headers=visitor(TRAIN))).status_code == 403
    assert (await arena.vote(battle_id, headers=visitor(TRAIN) | _cookie(COOKIES.new()))).status_code == 403
    assert (await arena.vote(battle_id, headers=visitor(TRAIN) | cookie)).status_code == 200
    [record] = await arena.vote_log()
    assert record["identity"] == "cookie"


async def test_a_client_without_a_cookie_gets_one_that_owns_its_battle(arena: Arena) -> None:
    battle_id, given = await _begin(arena, visitor(HOME))

    cookie = _cookie(_text_in(given))
    assert (await arena.vote(battle_id, headers=visitor(TRAIN) | cookie)).status_code == 200
    second, given_again = await _begin(arena, visitor(TRAIN) | cookie)
    assert given_again is None
    assert (await arena.vote(second, headers=visitor(TRAIN) | cookie)).status_code == 200
    first, then = await arena.vote_log()
    assert first["voter"] == then["voter"]
    assert first["identity"] == then["identity"] == "cookie"


async def test_a_client_that_keeps_no_cookies_is_known_by_its_address_for_each_battle(arena: Arena) -> None:
    for _ in range(2):
        battle_id, _ = await _begin(arena, visitor(HOME))
        assert (await arena.vote(battle_id, headers=visitor(HOME))).status_code == 200
    first, then = await arena.vote_log()
    assert first["voter"] == then["voter"]  # not a new voter with each cookie that it drops
    assert first["identity"] == then["identity"] == "address"


@pytest.mark.parametrize("lost_to", ["none", "another", "garbage"])
async def test_a_browser_that_lost_its_cookie_in_mid_battle_votes_from_the_same_address(
    arena: Arena, lost_to: str
) -> None:
    """Another: two tabs that were opened at the same time got a cookie each, and the second replaced the first."""
    now = {"none": {}, "another": _cookie(COOKIES.new()), "garbage": _cookie("c.xx.1.yy")}[lost_to]
    battle_id, _ = await _begin(arena, visitor(HOME) | _cookie(COOKIES.new()))

    assert (await arena.vote(battle_id, headers=visitor(HOME) | now)).status_code == 200
    assert (await arena.vote(battle_id, headers=visitor(HOME) | now)).status_code == 200
    [record] = await arena.vote_log()
    assert record["identity"] == "cookie"  # the voter is who began the battle


async def test_the_cookie_that_a_web_ui_gives_with_the_first_event_owns_the_battle(arena: Arena) -> None:
    text = COOKIES.new()
    battle_id, given = await _begin(arena, visitor(HOME) | {NEW_COOKIE_HEADER: text})

    assert given is None
    assert (await arena.vote(battle_id, headers=visitor(TRAIN) | _cookie(text))).status_code == 200


async def test_a_forged_cookie_is_none(arena: Arena) -> None:
    forged = VoterCookies("a guessed secret").new()
    _, given = await _begin(arena, visitor(HOME) | _cookie(forged) | {NEW_COOKIE_HEADER: forged})

    assert COOKIES.read(_text_in(given)) is not None


async def test_behind_tls_the_cookie_is_sent_over_tls_only(arena: Arena) -> None:
    await arena.add_two()
    headers = visitor(HOME) | {"X-Forwarded-Proto": "https"}
    response = await arena.client.post("/arena/battles", json={"mode": "anonymous"}, headers=headers)
    assert response.headers["set-cookie"].endswith("; Secure")


async def test_all_controllers_know_a_voter_by_the_same_cookie(arena: Arena) -> None:
    battle_id, given = await _begin(arena, visitor(HOME))
    other = await arena.add_controller()
    headers = visitor(TRAIN) | _cookie(_text_in(given))

    vote = await other.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "a"}, headers=headers)

    assert vote.status_code == 200


async def test_votes_of_one_network_share_its_hash_and_tell_no_address(arena: Arena) -> None:
    for address in (HOME, "203.0.113.77", TRAIN):
        battle_id, _ = await _begin(arena, visitor(address))
        await arena.vote(battle_id, headers=visitor(address))
    networks = [record["network"] for record in await arena.vote_log()]
    assert networks[0] == networks[1] != networks[2]
    assert all(re.fullmatch("[0-9a-f]{24}", network) for network in networks)


async def test_a_battle_that_began_before_there_were_cookies_keeps_its_owner(arena: Arena) -> None:
    battle_id, _ = await _begin(arena, visitor(HOME))
    key: Any = arena.keys.battle_prefix + battle_id
    await arena.redis.hdel(key, "voter_kind", "voter_address", "voter_offered", "voter_network")

    response = await arena.vote(battle_id, headers=visitor(HOME) | _cookie(COOKIES.new()))

    assert response.status_code == 200


def test_the_network_of_an_address() -> None:
    assert ClientAddress("203.0.113.9", False).network == "203.0.113.0/24"
    assert ClientAddress("2001:db8:1:2::/64", False).network == "2001:db8:1::/48"


def test_a_cookie_makes_the_same_voter_on_every_day(monkeypatch: pytest.MonkeyPatch) -> None:
    voters = Voters("secret")
    someone = Visitor(ClientAddress(HOME, False), "cookie", "id")
    monkeypatch.setattr(voters, "today", lambda: "2026-11-22")
    before = voters.owner(someone)
    monkeypatch.setattr(voters, "today", lambda: "2026-11-23")
    after = voters.owner(someone)

    assert before.voter == after.voter
    assert before.address != after.address
    assert voters.owner(replace(someone, kind="invite")).voter != after.voter
