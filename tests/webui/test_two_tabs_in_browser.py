"""One battle in two tabs, and a turn that is asked again because a side failed."""

from collections.abc import Generator

import pytest
from playwright.sync_api import Page

from tests.webui.conftest import Site, Visit
from webui import texts


@pytest.fixture
def mended(site: Site) -> Generator[None, None, None]:
    """Failures end when a test says so, and are back after it."""
    yield
    site.arena.fails = True


def questions(page: Page) -> list[str]:
    return page.locator("#thread .user-row").all_inner_texts()


def second_tab(visit: Visit) -> Page:
    """Another tab of the browser, on the same battle."""
    tab = visit.page.context.new_page()
    tab.goto(visit.site.url)
    tab.wait_for_selector("#vote-left")
    return tab


@pytest.mark.usefixtures("mended")
def test_a_failed_side_is_asked_again_in_its_place(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    num_battles = len(visit.site.arena.battles)
    visit.ask("fail b please")
    page.locator("#notice", has_text=texts.TURN_FAILED_LATER).wait_for()
    again = page.locator("#regenerate", has_text=texts.ASK_AGAIN)
    again.wait_for()
    visit.site.arena.fails = False
    again.click()
    page.locator("#regenerate", has_text=texts.REGENERATE).wait_for()
    assert page.locator("#thread", has_text=texts.FAILED_SIDE).count() == 0
    assert len(questions(page)) == 2
    assert len(visit.site.arena.battles) == num_battles
    page.click("#vote-right")
    page.wait_for_selector(".agon-reveal")


def test_a_vote_of_a_tab_that_missed_a_turn_waits_until_the_turn_is_seen(visit: Visit) -> None:
    page, num_votes = visit.open("/"), len(visit.site.arena.votes)
    visit.ask_and_wait("Hello!")
    tab = second_tab(visit)
    tab.fill("#prompt textarea", "What is 12 + 30?")
    tab.press("#prompt textarea", "Enter")
    tab.locator("#thread .user-row").nth(1).wait_for()
    tab.wait_for_selector("#vote-left")
    assert len(questions(page)) == 1
    page.click("#vote-left")
    page.locator("#notice", has_text=texts.WENT_ON).wait_for()
    page.locator("#thread .user-row").nth(1).wait_for()
    assert len(visit.site.arena.votes) == num_votes
    page.click("#vote-right")
    page.wait_for_selector(".agon-reveal")
    tab.click("#vote-right")
    tab.wait_for_selector(".agon-reveal")
    assert [vote[2] for vote in visit.site.arena.votes[num_votes:]] == ["b"]


def test_a_tab_that_missed_a_turn_regenerates_nothing(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    tab = second_tab(visit)
    tab.fill("#prompt textarea", "What is 12 + 30?")
    tab.press("#prompt textarea", "Enter")
    tab.locator("#thread .user-row").nth(1).wait_for()
    tab.wait_for_selector("#vote-left")
    page.click("#regenerate")
    page.locator("#notice", has_text=texts.WENT_ON).wait_for()
    page.locator("#thread .user-row").nth(1).wait_for()
    assert (
        page.locator("#thread .bot-row .md").all_inner_texts() == tab.locator("#thread .bot-row .md").all_inner_texts()
    )
