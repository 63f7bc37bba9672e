"""What visitors get of the administrator: notices, and the terms that they accept before the first battle."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.controller.support.arena import PROXY_TOKEN, Arena, visitor
from wire.voters import VoterCookies

TEXT = "Be kind.\n\nWrite nothing that must stay private."
COOKIES = VoterCookies(PROXY_TOKEN)


def browser(address: str = "203.0.113.7") -> dict[str, str]:
    """Headers of a visitor who has a cookie."""
    return {**visitor(address), "Cookie": f"{COOKIES.name}={COOKIES.new()}"}


async def begin(arena: Arena, headers: dict[str, str] | None = None) -> httpx.Response:
    return await arena.client.post("/arena/battles", json={"mode": "anonymous"}, headers=headers)


async def set_terms(arena: Arena, text: str = TEXT) -> str | None:
    response = await arena.client.put("/arena/admin/terms", json={"text": text}, headers=arena.admin)
    assert response.status_code == 200, response.text
    terms = response.json()["terms"]
    return None if terms is None else terms["version"]


async def shown(arena: Arena) -> list[str]:
    return [notice["text"] for notice in (await arena.client.get("/arena/notices")).json()["notices"]]


async def add_notice(arena: Arena, text: str, **values: Any) -> httpx.Response:
    return await arena.client.post("/arena/admin/notices", json={"text": text, **values}, headers=arena.admin)


async def test_visitors_see_the_notices_of_now_the_most_severe_first(arena: Arena) -> None:
    seconds, _ = await arena.redis.time()
    now = int(seconds)
    await add_notice(arena, "for all time")
    await add_notice(arena, "now", severity="critical", starts=now - 60, ends=now + 3600)
    await add_notice(arena, "later", starts=now + 3600)
    await add_notice(arena, "over", starts=now - 60, ends=now - 30)
    assert await shown(arena) == ["now", "for all time"]


async def test_a_removed_notice_is_shown_no_more(arena: Arena) -> None:
    notice = (await add_notice(arena, "soon")).json()
    path = f"/arena/admin/notices/{notice['id']}"
    assert (await arena.client.delete(path, headers=arena.admin)).json() == notice
    assert await shown(arena) == []
    assert (await arena.client.delete(path, headers=arena.admin)).json()["error"]["code"] == "notice_not_found"


@pytest.mark.parametrize(
    "values",
    [{"text": " "}, {"text": "x" * 501}, {"severity": "loud"}, {"starts": 50, "ends": 50}, {"ends": float("1e300")}],
    ids=["blank", "long", "severity", "no time", "never"],
)
async def test_a_notice_that_cannot_be_shown_is_refused(arena: Arena, values: dict[str, Any]) -> None:
    assert (await add_notice(arena, **{"text": "x", **values})).status_code == 400


async def test_a_visitor_accepts_the_terms_once_before_the_first_battle(arena: Arena) -> None:
    await arena.add_two()
    version, ada = await set_terms(arena), browser()
    refused = await begin(arena, ada)
    terms = (await arena.client.get("/arena/terms", headers=ada)).json()
    accepted = await arena.client.post("/arena/terms", json={"version": version}, headers=ada)

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "terms_not_accepted")
    assert terms == {"version": version, "text": TEXT, "is_accepted": False}
    assert accepted.json()["is_accepted"]
    for _ in range(2):
        assert (await begin(arena, ada)).status_code == 201
    assert (await begin(arena, browser())).status_code == 403


async def test_the_cookie_carries_the_acceptance_to_another_address_and_the_address_does_not(arena: Arena) -> None:
    await arena.add_two()
    version, ada = await set_terms(arena), browser()
    await arena.client.post("/arena/terms", json={"version": version}, headers=ada)
    assert (await begin(arena, {**ada, **visitor("198.51.100.9")})).status_code == 201
    assert (await begin(arena, visitor("203.0.113.7"))).status_code == 403


async def test_a_chat_in_a_page_asks_for_the_terms_and_a_client_of_the_api_does_not(arena: Arena) -> None:
    await arena.add_two()
    version, ada = await set_terms(arena), browser()
    body = {"model": "alpha", "messages": [{"role": "user", "content": "Hello!"}]}

    async def chat(headers: dict[str, str]) -> httpx.Response:
        return await arena.client.post("/v1/chat/completions", json=body, headers=headers)

    refused = await chat({**ada, **visitor("203.0.113.7")})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "terms_not_accepted")
    assert (await chat({})).status_code == 200
    await arena.client.post("/arena/terms", json={"version": version}, headers=ada)
    assert (await chat({**ada, **visitor("203.0.113.7")})).status_code == 200


async def test_new_terms_are_accepted_again(arena: Arena) -> None:
    await arena.add_two()
    first, ada = await set_terms(arena), browser()
    await arena.client.post("/arena/terms", json={"version": first}, headers=ada)
    second = await set_terms(arena, "Other terms.")
    old = await arena.client.post("/arena/terms", json={"version": first}, headers=ada)
    assert second != first
    assert (old.status_code, (await begin(arena, ada)).status_code) == (400, 403)
    await arena.client.post("/arena/terms", json={"version": second}, headers=ada)
    assert (await begin(arena, ada)).status_code == 201


async def test_a_client_without_cookies_accepts_for_its_address(arena: Arena) -> None:
    await arena.add_two()
    version, curl = await set_terms(arena), visitor("203.0.113.7")
    await arena.client.post("/arena/terms", json={"version": version}, headers=curl)
    assert (await begin(arena, curl)).status_code == 201
    [key] = [key async for key in arena.redis.scan_iter(match=f"{arena.keys.prefix}:terms:*")]
    assert "203.0.113.7" not in key
    assert 0 < await arena.redis.ttl(key) <= 86_400


async def test_an_empty_text_ends_the_gate(arena: Arena) -> None:
    await arena.add_two()
    await set_terms(arena)
    assert await set_terms(arena, " \n") is None
    assert (await begin(arena, browser())).status_code == 201
    assert (await arena.client.get("/arena/terms")).json() == {"version": None, "text": "", "is_accepted": True}


async def test_terms_may_come_from_a_file_and_those_of_the_administrator_go_before_them(
    open_arena: Any, tmp_path: Path
) -> None:
    file = tmp_path / "terms.txt"
    file.write_text(TEXT)
    async with open_arena(terms_file=file) as arena:
        assert (await arena.client.get("/arena/terms")).json()["text"] == TEXT
        await set_terms(arena, "Other terms.")
        assert (await arena.client.get("/arena/terms")).json()["text"] == "Other terms."
