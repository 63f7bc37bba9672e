"""A whole battle as a visitor sees it: three turns, a vote, the reveal, the leaderboard. In a real browser."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.e2e.arena import UpProcess
from tests.e2e.conftest import DEMO_MODELS

PATIENCE_MS = 60_000
QUESTIONS = ("Hello! How are you today?", "What is 12 + 30?", "Thank you, goodbye.")


@pytest.fixture
def page(chromium: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield page
        browser.close()


def ask(page: Page, question: str) -> None:
    """Send, and wait until both sides have finished: then, and only then, there are vote buttons."""
    page.locator("#prompt textarea").fill(question)
    page.locator("#send").click()
    expect(page.locator("#thread")).to_contain_text(question, timeout=PATIENCE_MS)
    expect(page.locator("#votes")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator("#heads .agon-finished")).to_have_count(2, timeout=PATIENCE_MS)


def test_a_visitor_battles_votes_sees_the_names_and_finds_the_vote_on_the_board(
    demo_arena: UpProcess, page: Page
) -> None:
    hosts: set[str | None] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
    page.goto(demo_arena.webui_url)
    for question in QUESTIONS:
        ask(page, question)
    everything = page.content().lower()
    assert not any(name in everything for name in DEMO_MODELS)

    page.get_by_role("button", name="A is better").click()
    plates = page.locator("#reveal .agon-plate .agon-name")
    expect(plates).to_have_count(2, timeout=PATIENCE_MS)
    names = plates.all_inner_texts()
    assert set(names) < set(DEMO_MODELS)
    assert len(set(names)) == 2
    expect(page.locator("#votes")).to_be_hidden()

    page.get_by_label("More accurate").check()
    page.get_by_role("button", name="Answer B: bad").click()
    expect(page.locator(".agon-feedback-state")).to_have_text("Saved", timeout=PATIENCE_MS)
    page.reload()
    expect(page.get_by_label("More accurate")).to_be_checked(timeout=PATIENCE_MS)
    expect(page.get_by_role("button", name="Answer B: bad")).to_have_attribute("aria-pressed", "true")

    page.goto(f"{demo_arena.webui_url}/leaderboard")
    board = page.locator("#board")
    for name in names:
        expect(board).to_contain_text(name, timeout=PATIENCE_MS)
    assert hosts == {"127.0.0.1"}
