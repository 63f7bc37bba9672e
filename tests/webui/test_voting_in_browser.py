"""No vote by accident: which keys vote, and how a vote is taken back."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Page

from tests.webui.conftest import Site, Visit
from webui import texts

LONG = 60.0  #: seconds in which every test ends
GRACE_MS = 600  #: VOTE_GRACE_MS of agon.js, and some


@pytest.fixture
def undo_s(site: Site) -> Generator[None, None, None]:
    """A vote waits until the visitor goes on."""
    pending = site.app.state.pending_votes
    usual_s, pending.undo_s = pending.undo_s, LONG
    yield
    pending.undo_s = usual_s


def asked(visit: Visit, question: str = "What is 12 + 30?") -> tuple[Page, int]:
    """A page with two answers that can be voted on, and the number of votes so far."""
    page = visit.open("/")
    visit.ask_and_wait(question)
    page.wait_for_selector("#vote-left[aria-keyshortcuts]")
    page.wait_for_timeout(GRACE_MS)
    return page, len(visit.site.arena.votes)


def test_keys_that_scroll_do_not_vote_and_keys_that_select_do_not_either(visit: Visit) -> None:
    page, num_votes = asked(visit)
    for key in ("ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "PageDown", "Space"):
        page.keyboard.press(key)
    page.locator("#thread .bot-row pre code").first.click()
    for key in ("ArrowRight", "Shift+ArrowRight", "Shift+ArrowDown"):
        page.keyboard.press(key)
    assert page.locator("#undo").count() == 0
    assert page.locator("#vote-left").is_visible()
    page.mouse.click(5, 300)
    page.evaluate("getSelection().removeAllRanges()")
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_selector(".agon-reveal")
    assert [vote[2] for vote in visit.site.arena.votes[num_votes:]] == ["b"]


def test_arrow_keys_move_between_the_buttons_and_enter_votes(visit: Visit) -> None:
    page, num_votes = asked(visit)
    page.focus("#vote-left")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.id") == "vote-down"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.id") == "vote-up"
    assert len(visit.site.arena.votes) == num_votes
    page.keyboard.press("Enter")
    page.wait_for_selector(".agon-reveal")
    assert visit.site.arena.votes[-1][2] == "tie"


@pytest.mark.usefixtures("undo_s")
def test_a_vote_can_be_taken_back_before_anything_is_recorded_or_shown(visit: Visit) -> None:
    page, num_votes = asked(visit)
    page.click("#vote-left")
    page.wait_for_selector("#undo")
    assert texts.VOTED["a"] in page.inner_text("#notice")
    assert page.locator("#vote-left").count() == 0
    assert page.locator(".agon-reveal").count() == 0
    page.click("#undo")
    page.wait_for_selector("#vote-right")
    assert len(visit.site.arena.votes) == num_votes
    page.click("#vote-right")
    page.wait_for_selector("#undo")
    page.click("#new")  # whoever goes on has made up their mind
    page.wait_for_selector(".agon-intro")
    visit.wait_until(lambda: [vote[2] for vote in visit.site.arena.votes[num_votes:]] == ["b"])


@pytest.mark.usefixtures("undo_s")
def test_a_page_that_is_loaded_again_shows_the_vote_that_waits(visit: Visit) -> None:
    page, num_votes = asked(visit)
    page.click("#vote-up")
    page.wait_for_selector("#undo")
    page.reload()
    page.wait_for_selector("#undo")
    assert texts.VOTED["tie"] in page.inner_text("#notice")
    visit.ask("Hello!")
    visit.wait_until(lambda: len(visit.site.arena.votes) == num_votes + 1)
    assert visit.site.arena.votes[-1][2] == "tie"


def test_a_vote_is_recorded_although_its_tab_was_closed(visit: Visit) -> None:
    visit.site.app.state.pending_votes.undo_s = 1.0
    try:
        page, num_votes = asked(visit)
        page.click("#vote-left")
        page.wait_for_selector("#undo")
        page.goto("about:blank")
        visit.wait_until(lambda: len(visit.site.arena.votes) == num_votes + 1)
    finally:
        visit.site.app.state.pending_votes.undo_s = 0.3
