"""Invited voters: their votes are theirs wherever they are, until the invitation is revoked."""

from typing import Any

import httpx
import pytest

from tests.controller.support.arena import PROXY_TOKEN, Arena, visitor
from wire.voters import VoterCookies

HOME, TRAIN = "203.0.113.9", "198.51.100.3"
COOKIES = VoterCookies(PROXY_TOKEN)
NAMES = "/arena/voters/invitations"


async def _invite(arena: Arena, name: str, cohort: str | None = None) -> dict[str, Any]:
    body = {"name": name} | ({} if cohort is None else {"cohort": cohort})
    response = await arena.client.post(NAMES, json=body, headers=arena.admin)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def _join(arena: Arena, token: str) -> httpx.Response:
    return await arena.client.post(f"/arena/voters/join/{token}")


async def _cookie(arena: Arena, name: str, cohort: str | None = None) -> dict[str, str]:
    """The cookie of a voter who has followed the link of a new invitation."""
    joined = await _join(arena, (await _invite(arena, name, cohort))["token"])
    assert joined.status_code == 200, joined.text
    return {"Cookie": joined.headers["set-cookie"].partition(";")[0]}


async def _begin(arena: Arena, headers: dict[str, str]) -> httpx.Response:
    if not arena.workers:
        await arena.add_two()
    return await arena.client.post("/arena/battles", json={"mode": "anonymous"}, headers=headers)


async def _vote(arena: Arena, headers: dict[str, str], begun: httpx.Response) -> httpx.Response:
    await arena.turn(begun.json()["id"])
    return await arena.vote(begun.json()["id"], headers=headers)


@pytest.mark.parametrize("mode", ["cookie", "invite"])
async def test_an_invited_voter_votes_as_one_voter_of_a_cohort(open_arena: Any, mode: str) -> None:
    async with open_arena(identity=mode) as arena:
        cookie = await _cookie(arena, "grace", "staff")
        begun = await _begin(arena, visitor(HOME) | cookie)
        assert "set-cookie" not in begun.headers
        assert (await _vote(arena, visitor(TRAIN) | cookie, begun)).status_code == 200
        begun = await _begin(arena, visitor(TRAIN) | cookie)
        assert (await _vote(arena, visitor(TRAIN) | cookie, begun)).status_code == 200

        first, then = await arena.vote_log()
        assert first["voter"] == then["voter"]
        assert (first["identity"], first["cohort"]) == (then["identity"], then["cohort"]) == ("invite", "staff")
        assert "grace" not in str(first)


async def test_where_voters_are_invited_nobody_else_begins_a_battle(open_arena: Any) -> None:
    async with open_arena(identity="invite") as arena:
        for headers in ({}, {"Cookie": f"{COOKIES.name}={COOKIES.new()}"}):
            refused = await _begin(arena, visitor(HOME) | headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "voter_not_known")
            assert "set-cookie" not in refused.headers


@pytest.mark.parametrize(("mode", "status"), [("cookie", 201), ("invite", 403)])
async def test_a_revoked_invitation_holds_for_nothing(open_arena: Any, mode: str, status: int) -> None:
    async with open_arena(identity=mode) as arena:
        cookie = await _cookie(arena, "grace")
        begun = await _begin(arena, visitor(HOME) | cookie)
        revoked = await arena.client.delete(f"{NAMES}/grace", headers=arena.admin)
        assert revoked.json()["revoked"] >= revoked.json()["created"]

        assert (await _vote(arena, visitor(HOME) | cookie, begun)).status_code == 403
        assert (await _begin(arena, visitor(HOME) | cookie)).status_code == status
        assert (await _join(arena, revoked.json()["token"])).json()["error"]["code"] == "invitation_not_found"
        again = await arena.client.delete(f"{NAMES}/grace", headers=arena.admin)
        assert (again.status_code, again.json()["error"]["code"]) == (404, "invitation_not_found")
        assert await arena.vote_log() == []


async def test_the_battle_of_an_invited_voter_is_no_one_elses_at_the_same_address(arena: Arena) -> None:
    cookie = await _cookie(arena, "grace")
    begun = await _begin(arena, visitor(HOME) | cookie)
    for other in ({}, {"Cookie": f"{COOKIES.name}={COOKIES.new()}"}, await _cookie(arena, "bob")):
        assert (await _vote(arena, visitor(HOME) | other, begun)).status_code == 403


async def test_a_name_is_invited_once_and_anew_after_it_was_revoked(arena: Arena) -> None:
    first = COOKIES.read((await _invite(arena, "grace", "staff"))["token"])
    again = await _invite(arena, "grace", "others")
    assert again["cohort"] == "staff"
    await arena.client.delete(f"{NAMES}/grace", headers=arena.admin)
    anew = COOKIES.read((await _invite(arena, "grace"))["token"])
    second = COOKIES.read(again["token"])
    assert first is not None
    assert second is not None
    assert anew is not None
    assert first.voter_id == second.voter_id != anew.voter_id

    listed = (await arena.client.get(NAMES, headers=arena.admin)).json()["invitations"]
    assert {(row["name"], row["cohort"], row["revoked"] is None) for row in listed} == {
        ("grace", "staff", False),
        ("grace", None, True),
    }


async def test_a_token_that_was_never_made_lets_nobody_join(arena: Arena) -> None:
    guessed = VoterCookies("a guess").text("i", "A" * 22)
    for token in ("x", "i." + "A" * 22 + ".1.x", guessed, COOKIES.new(), COOKIES.text("i", "B" * 22)):
        response = await _join(arena, token)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "invitation_not_found")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 65, "a\n"], ids=["empty", "blank", "slash", "long", "break"])
async def test_a_name_that_no_link_or_file_could_carry_is_refused(arena: Arena, name: str) -> None:
    response = await arena.client.post(NAMES, json={"name": name}, headers=arena.admin)
    assert response.status_code == 400
