"""Who a voter is: a browser, whatever its address, and each browser behind an address."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.arena import UpProcess, arena
from webui import texts

PATIENCE_MS = 60_000
QUESTION = " ".join(f"word{number}" for number in range(1, 41))


@pytest.fixture
def proxied(tmp_path: Path, echo_flags: list[str]) -> Iterator[UpProcess]:
    """An arena behind a proxy that tells each visitor's address."""
    settings = {"AGON_WEBUI_TRUSTED_PROXIES": "127.0.0.1", "AGON_ECHO_TOKENS_PER_S": "20", "AGON_WEBUI_UNDO_S": "0.2"}
    with arena(tmp_path / "data", echo_flags, 2, **settings) as up:
        up.wait_ready()
        yield up


@pytest.fixture
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def visitor_at(browser: Browser, address: str, url: str) -> Page:
    context = browser.new_context(extra_http_headers={"X-Forwarded-For": address})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#send")
    return page


def ask(page: Page) -> None:
    page.fill("#prompt textarea", QUESTION)
    page.press("#prompt textarea", "Enter")


def vote(page: Page) -> None:
    page.click("#vote-left")
    page.locator(".agon-reveal", has_text=texts.VOTED["a"]).wait_for()


def test_a_new_address_in_mid_battle_keeps_the_vote_and_one_address_is_many_voters(
    proxied: UpProcess, browser: Browser
) -> None:
    first = visitor_at(browser, "198.51.100.7", proxied.webui_url)
    ask(first)
    first.locator("#thread .bot-row .md").first.get_by_text("word4").wait_for()
    first.context.set_extra_http_headers({"X-Forwarded-For": "203.0.113.9"})
    first.wait_for_selector("#vote-left")
    ask(first)
    first.locator("#thread .user-row").nth(1).wait_for()
    first.wait_for_selector("#vote-left")
    vote(first)

    second = visitor_at(browser, "203.0.113.9", proxied.webui_url)
    ask(second)
    second.wait_for_selector("#vote-left")
    vote(second)

    cookies = [next(cookie for cookie in page.context.cookies() if cookie["httpOnly"]) for page in (first, second)]
    assert len({cookie["value"] for cookie in cookies}) == 2
    assert "agon" not in first.evaluate("document.cookie")
    token = json.loads((proxied.data_dir / "secrets.json").read_text())["admin_token"]
    headers = {"Authorization": f"Bearer {token}"}
    export = httpx.get(f"{proxied.controller_url}/arena/votes", headers=headers, trust_env=False)
    votes = [json.loads(line) for line in export.raise_for_status().text.splitlines()]
    assert len({cast["voter"] for cast in votes}) == len(votes) == 2
