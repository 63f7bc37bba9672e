"""Notices of the operator and the terms, as a visitor meets them."""

import time
from collections.abc import Generator
from typing import Any

import httpx
import pytest

from tests.webui.conftest import MAX_AGE_S, Site, Visit
from webui import texts
from wire.ids import NoticeId
from wire.notices import Notice, Severity

WORDS = {**texts.NOTICE_WORDS, "title": texts.TERMS_TITLE}
DARK = {"color_scheme": "dark"}


@pytest.fixture(autouse=True)
def _clean(site: Site) -> Generator[None, None, None]:
    """Each test ends without notices and terms, and the web UI forgets those that it was told."""
    yield
    site.arena.admin.notices.clear()
    site.arena.admin.terms_text = ""
    while (told := httpx.get(f"{site.url}/notices").json())["notices"] or told["terms"]:
        time.sleep(MAX_AGE_S / 4)


def announce(visit: Visit, text: str, severity: Severity = "info") -> Notice:
    notice = Notice(id=NoticeId(f"n-{abs(hash(text))}"), text=text, severity=severity, starts=0)
    visit.site.arena.admin.notices.append(notice)
    visit.wait_until(lambda: notice.id in (told["id"] for told in _told(visit)["notices"]))
    return notice


def set_terms(visit: Visit, text: str) -> None:
    visit.site.arena.admin.terms_text = text
    visit.wait_until(lambda: _told(visit)["terms"] is not None)


def _told(visit: Visit) -> dict[str, Any]:
    """What the web UI tells a new visitor. It asks the controller every MAX_AGE_S only."""
    told: dict[str, Any] = httpx.get(f"{visit.site.url}/notices").json()
    return told


@pytest.mark.parametrize("path", ["/leaderboard", "/about", "/history", "/shared/nothing-there"])
def test_a_notice_stands_above_every_page_until_it_is_hidden(visit: Visit, path: str) -> None:
    announce(visit, "The arena is updated <b>tonight</b>.", "warning")
    announce(visit, "Another thing.")
    page = visit.page
    page.goto(visit.site.url + path)
    line = page.locator(".agon-announcement-warning")
    line.wait_for()
    assert line.locator("p").inner_text() == "The arena is updated <b>tonight</b>."
    assert page.evaluate("document.querySelector('.agon-announcement').getBoundingClientRect().top") == 0
    line.get_by_role("button", name=WORDS["hide"]).click()
    page.reload()
    page.get_by_text("Another thing.").wait_for()
    assert line.count() == 0


@pytest.mark.parametrize("visit", [{}, DARK], indirect=True, ids=["light", "dark"])
def test_a_visitor_accepts_the_terms_once_and_then_asks(visit: Visit) -> None:
    set_terms(visit, "Be kind.\n\nWrite nothing <i>secret</i>.")
    page = visit.open("/")
    dialog = page.get_by_role("dialog", name=WORDS["title"])
    dialog.wait_for()
    assert dialog.locator(".agon-terms-text p").all_inner_texts() == ["Be kind.", "Write nothing <i>secret</i>."]
    page.keyboard.press("Escape")
    assert dialog.is_visible()
    dialog.get_by_role("button", name=WORDS["accept"]).click()
    dialog.wait_for(state="detached")
    visit.ask_and_wait("Hello!")
    page.reload()
    page.wait_for_selector("#vote-left")
    assert page.locator("#agon-terms").count() == 0


def test_a_question_that_is_refused_for_new_terms_shows_them(visit: Visit) -> None:
    with visit.page.expect_response("**/notices"):  # which knows no terms yet: else the page would show them at once
        page = visit.open("/")
    visit.site.arena.admin.terms_text = "New terms of the arena."
    visit.ask("Hello!")
    page.get_by_text("Please accept the terms", exact=False).wait_for()
    assert page.input_value("#prompt textarea") == "Hello!"
    page.get_by_role("button", name=WORDS["accept"]).click()
    page.locator("#agon-terms").wait_for(state="detached")
    visit.ask_and_wait("Hello!")


def test_pages_that_ask_nothing_ask_for_no_consent(visit: Visit) -> None:
    set_terms(visit, "Terms for those who ask.")
    visit.open("/")
    visit.page.get_by_role("link", name=WORDS["decline"]).click()
    visit.page.wait_for_url("**/leaderboard")
    visit.page.wait_for_selector("#board")
    assert visit.page.locator("#agon-terms").count() == 0
    text = visit.page.request.get(visit.site.url + "/terms").text()
    assert "Terms for those who ask." in text
