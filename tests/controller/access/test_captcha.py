"""A captcha before the first battle: passed, failed, and a service that does not answer."""

from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response

from tests.controller.support.arena import PROXY_TOKEN, Arena, visitor
from tests.controller.support.running import running_app
from wire.voters import UNCHECKED_FOR_S, VoterCookies

COOKIES = VoterCookies(PROXY_TOKEN)
HOME, TRAIN = "203.0.113.9", "198.51.100.3"
#: What the service answers to each response of a visitor: status, and body.
ANSWERS = {
    "right": (200, '{"success": true}'),
    "wrong": (200, '{"success": false, "error-codes": ["invalid-input-response"]}'),
    "our secret is wrong": (200, '{"success": false, "error-codes": ["invalid-input-secret"]}'),
    "broken": (500, "no"),
    "no json": (200, "<html>"),
    "no object": (200, "[]"),
    "no answer": (200, '{"success": "yes"}'),
    "elsewhere": (302, ""),
}
UNAVAILABLE = sorted({*ANSWERS} - {"right", "wrong"})


def _service(asked: list[dict[str, list[str]]]) -> FastAPI:
    app = FastAPI()

    @app.post("/siteverify")
    async def verify(request: Request) -> Response:
        asked.append(parse_qs((await request.body()).decode()))
        status, body = ANSWERS[asked[-1]["response"][0]]
        return Response(body, status)

    return app


async def _check(arena: Arena, response: str) -> httpx.Response:
    return await arena.client.post("/arena/voters/check", json={"response": response}, headers=visitor(HOME))


async def _begin(arena: Arena, headers: dict[str, str]) -> httpx.Response:
    if not arena.workers:
        await arena.add_two()
    return await arena.client.post("/arena/battles", json={"mode": "anonymous"}, headers=headers)


def _cookie(checked: httpx.Response) -> dict[str, str]:
    return {"Cookie": checked.headers["set-cookie"].partition(";")[0]}


async def test_who_passes_becomes_a_voter(open_arena: Any) -> None:
    asked: list[dict[str, list[str]]] = []
    async with (
        running_app(_service(asked)) as url,
        open_arena(captcha_verify_url=f"{url}/siteverify", captcha_secret="ours") as arena,
    ):
        checked = await _check(arena, "right")
        assert checked.json() == {"outcome": "passed"}
        assert asked == [{"secret": ["ours"], "response": ["right"], "remoteip": [HOME]}]

        begun = await _begin(arena, visitor(HOME) | _cookie(checked))
        await arena.turn(begun.json()["id"])
        assert (await arena.vote(begun.json()["id"], headers=visitor(TRAIN) | _cookie(checked))).status_code == 200
        [record] = await arena.vote_log()
        assert record["identity"] == "cookie"


async def test_who_fails_or_was_never_asked_begins_no_battle(open_arena: Any) -> None:
    async with (
        running_app(_service([])) as url,
        open_arena(captcha_verify_url=f"{url}/siteverify", captcha_secret="ours") as arena,
    ):
        failed = await _check(arena, "wrong")
        assert (failed.status_code, failed.json()["error"]["code"]) == (403, "captcha_failed")
        assert "set-cookie" not in failed.headers
        refused = await _begin(arena, visitor(HOME))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "captcha_needed")
        assert "set-cookie" not in refused.headers


@pytest.mark.parametrize("response", [*UNAVAILABLE, "nothing listens"])
async def test_while_the_service_does_not_answer_visitors_are_known_by_their_address(
    open_arena: Any, response: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running_app(_service([])) as url,
        open_arena(
            captcha_verify_url="http://127.0.0.1:9/siteverify" if response == "nothing listens" else f"{url}/siteverify"
        ) as arena,
    ):
        checked = await _check(arena, response)
        assert checked.json() == {"outcome": "unavailable"}
        begun = await _begin(arena, visitor(HOME) | _cookie(checked))
        await arena.turn(begun.json()["id"])
        assert (await arena.vote(begun.json()["id"], headers=visitor(HOME) | _cookie(checked))).status_code == 200
        [record] = await arena.vote_log()
        assert record["identity"] == "address"

        now = COOKIES.read(checked.cookies[COOKIES.name])
        assert now is not None
        monkeypatch.setattr("wire.voters.time.time", lambda: now.made_at + UNCHECKED_FOR_S + 1)
        assert (await _begin(arena, visitor(HOME) | _cookie(checked))).status_code == 403


async def test_an_arena_without_a_captcha_gives_a_cookie_to_who_asks(arena: Arena) -> None:
    checked = await _check(arena, "anything")
    assert checked.json() == {"outcome": "not_asked"}
    assert COOKIES.read(checked.cookies[COOKIES.name]) is not None
