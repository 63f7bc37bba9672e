"""Cookies of visitors: who gets one, what the controller hears of it, and that nobody needs one."""

import json
import random
import time
from collections.abc import AsyncIterator

import aiohttp
import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.faults.pages import Layout, Page, read_layout
from tests.webui.conftest import PROXY_TOKEN, Site
from webui import texts
from webui.captcha import add_check_page
from webui.client import ControllerClient
from webui.visitors import Visitor, VisitorCookies
from wire.battles import CreateBattle
from wire.errors import ApiError, ErrorCode
from wire.voters import VoterCookies

COOKIES = VoterCookies(PROXY_TOKEN)


@pytest.fixture
async def http(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=site.url, timeout=60, trust_env=False, verify=False) as client:
        yield client


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(trust_env=False) as session:
        yield session


@pytest.mark.parametrize("path", [*texts.PAGES, texts.ABOUT_PATH])
async def test_every_page_gives_a_new_visitor_one_cookie(http: httpx.AsyncClient, path: str) -> None:
    first = await http.get(path)
    again = await http.get(path)

    given = first.headers["set-cookie"]
    assert "; HttpOnly; SameSite=Lax" in given
    assert "Secure" not in given
    assert COOKIES.read(http.cookies[COOKIES.name]) is not None
    assert first.headers["cache-control"] == "private, no-cache"
    assert "set-cookie" not in again.headers


async def test_behind_tls_the_cookie_is_for_tls(http: httpx.AsyncClient) -> None:
    response = await http.get("/", headers={"X-Forwarded-Proto": "https"})
    assert response.headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize("path", ["/health", "/config", "/theme.css", "/no-such-page"])
async def test_nothing_else_gives_a_cookie(http: httpx.AsyncClient, path: str) -> None:
    assert "set-cookie" not in (await http.get(path)).headers


async def test_a_forged_cookie_is_replaced(http: httpx.AsyncClient) -> None:
    forged = VoterCookies("a guess").new()
    response = await http.get("/", headers={"Cookie": f"{COOKIES.name}={forged}"})
    assert COOKIES.name in response.headers["set-cookie"]


async def _battle(site: Site, page: Page) -> list[tuple[str | None, str | None]]:
    """What the controller heard of the visitor with each request of a battle: cookie, and new cookie."""
    start = len(site.arena.voters)
    await page.load()
    await page.ask("Hello!")
    await page.vote("a")
    assert page.is_revealed
    paths = [path for _, path, _ in site.arena.requests[start:]]
    return [
        voter
        for path, voter in zip(paths, site.arena.voters[start:], strict=True)
        if path.endswith(("/battles", "/turns", "/vote"))
    ]


@pytest.fixture
async def layout(site: Site, session: aiohttp.ClientSession) -> Layout:
    return await read_layout(site.url, session)


async def test_the_events_of_a_page_carry_the_cookie_of_the_browser(
    site: Site, session: aiohttp.ClientSession, layout: Layout
) -> None:
    text = COOKIES.new()
    heard = await _battle(site, Page(site.url, layout, session, random.Random(1), {COOKIES.name: text}))
    assert len(heard) == 3
    assert set(heard) == {(f"{COOKIES.name}={text}", None)}


async def test_a_page_that_was_open_before_gets_its_cookie_with_an_event(
    site: Site, session: aiohttp.ClientSession, layout: Layout
) -> None:
    jar: dict[str, str] = {}
    page = Page(site.url, layout, session, random.Random(2))
    await page.load()
    page.cookies = jar
    start = len(site.arena.voters)
    await page.ask("Hello!")
    begun = dict(zip((path for _, path, _ in site.arena.requests[start:]), site.arena.voters[start:], strict=True))
    shown, given = begun["/arena/battles"]

    heard = await _battle(site, Page(site.url, layout, session, random.Random(4), jar))

    assert (shown, given) == (None, jar[COOKIES.name])
    assert set(heard) == {(f"{COOKIES.name}={given}", None)}


async def test_a_browser_that_takes_no_cookies_has_its_battle_and_its_vote(
    site: Site, session: aiohttp.ClientSession, layout: Layout
) -> None:
    heard = await _battle(site, Page(site.url, layout, session, random.Random(3)))
    assert len(heard) == 3
    assert all(shown is None and COOKIES.read(new) is not None for shown, new in heard)


async def test_a_cookie_that_a_controller_sets_is_not_kept_for_the_next_visitor(site: Site) -> None:
    sent: list[str | None] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("cookie"))
        view = {"id": "b1", "mode": "anonymous", "state": "open", "a": {}, "b": {}, "max_turns": 20}
        return httpx.Response(201, json=view, headers={"Set-Cookie": f"{COOKIES.name}=x; Path=/"})

    client = ControllerClient("http://controller", transport=httpx.MockTransport(answer))
    for _ in range(2):
        await client.create_battle(CreateBattle(mode="anonymous"), Visitor("203.0.113.7"))
    await client.aclose()
    assert sent == [None, None]


async def test_the_link_of_an_invitation_makes_the_browser_its_voter(http: httpx.AsyncClient, site: Site) -> None:
    joined = await http.get(f"/join/{COOKIES.text('i', 'A' * 22)}")

    assert (joined.status_code, joined.headers["location"]) == (303, "/")
    cookie = COOKIES.read(http.cookies[COOKIES.name])
    assert cookie is not None
    assert (cookie.kind, cookie.voter_id) == ("i", "A" * 22)
    assert "set-cookie" not in (await http.get("/")).headers


async def test_a_link_that_does_not_hold_says_so(http: httpx.AsyncClient, site: Site) -> None:
    revoked = COOKIES.text("i", "B" * 22)
    site.arena.revoked.add(revoked)
    for token in (revoked, "x", COOKIES.new(), VoterCookies("a guess").text("i", "A" * 22)):
        response = await http.get(f"/join/{token}")

        assert response.status_code == 404
        assert texts.FAILURES[ErrorCode.INVITATION_NOT_FOUND] in response.text
        assert "set-cookie" not in response.headers


async def test_where_voters_are_invited_only_their_cookies_are_given_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await Response("a page")(scope, receive, send)

    app = VisitorCookies(page, COOKIES, gives_new=False)
    transport = httpx.ASGITransport(app)
    invited = COOKIES.text("i", "A" * 22)
    now = time.time()
    async with httpx.AsyncClient(transport=transport, base_url="http://ui", verify=False) as client:
        assert "set-cookie" not in (await client.get("/")).headers
        monkeypatch.setattr(time, "time", lambda: now + 31 * 86_400)
        renewed = await client.get("/", headers={"Cookie": f"{COOKIES.name}={invited}"})
        read = COOKIES.read(renewed.cookies[COOKIES.name])
    assert read is not None
    assert (read.kind, read.voter_id, read.is_old) == ("i", "A" * 22, False)


@pytest.mark.parametrize("outcome", ["passed", "failed", "unavailable"])
async def test_a_captcha_stands_before_the_pages(outcome: str) -> None:
    async def controller(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content) == {"response": "solved"}
        if outcome == "failed":
            error = ApiError(ErrorCode.CAPTCHA_FAILED, "Not solved.")
            return httpx.Response(error.status, json=error.body().model_dump())
        return httpx.Response(200, json={"outcome": outcome})

    app = FastAPI()
    client = ControllerClient("http://controller", transport=httpx.MockTransport(controller))
    add_check_page(app, client, COOKIES, "https://captcha.example.com/api.js", "public")
    app.get("/")(lambda: "a page")
    app.add_middleware(VisitorCookies, cookies=COOKIES, gives_new=True, checks=True)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://ui", verify=False) as browser:
        sent_on = await browser.get("/")
        assert (sent_on.status_code, sent_on.headers["location"]) == (303, "/check")
        assert "set-cookie" not in sent_on.headers
        shown = await browser.get("/check")
        assert "https://captcha.example.com/api.js" in shown.text
        assert "captcha.example.com" in shown.headers["content-security-policy"]

        done = await browser.post("/check", data={"h-captcha-response": "solved"})

        if outcome == "failed":
            assert done.status_code == 403
            assert texts.FAILURES[ErrorCode.CAPTCHA_FAILED] in done.text
            assert (await browser.get("/")).status_code == 303
        else:
            assert (done.status_code, done.headers["location"]) == (303, "/")
            assert (await browser.get("/")).status_code == 200
            cookie = COOKIES.read(browser.cookies[COOKIES.name])
            assert cookie is not None
            assert cookie.kind == {"passed": "p", "unavailable": "c"}[outcome]
        assert (await browser.post("/check", data={"x": "y"})).status_code == 400
    await client.aclose()
