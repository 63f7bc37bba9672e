"""The leaderboard page as a visitor uses it, in Chromium."""

import csv
import io
from collections.abc import Iterator

import pytest

from tests.webui.conftest import Visit
from tests.webui.fake_controller import FakeArena, some_votes
from webui import texts
from webui.ranking import csv_files, words

SIZES = [
    {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
]


@pytest.fixture
def full(visit: Visit) -> Iterator[FakeArena]:
    """A controller whose boards have everything that a view can hold."""
    arena = visit.site.arena
    arena.has_full_board = True
    yield arena
    arena.has_full_board = False


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("visit", SIZES, indirect=True, ids=["phone", "wide"])
def test_every_part_of_a_board_is_on_the_page_and_none_is_wider_than_the_screen(visit: Visit) -> None:
    page = visit.open("/leaderboard")
    page.wait_for_selector(".agon-history")
    for heading in (texts.STATEMENTS_TITLE, texts.RATINGS_TITLE, texts.MORE_TITLE):
        page.get_by_role("heading", name=heading).wait_for()
    page.get_by_text("Not counted: 16 votes").click()
    page.get_by_text(words.reason("stopped")).wait_for()
    page.get_by_text(texts.METHOD).click()
    page.wait_for_selector("#weighting input")
    width = page.evaluate("innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    outside = page.evaluate(
        "[...document.querySelectorAll('.agon-ranking td, .agon-part *, .agon-history *, .agon-facts *')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 120))"
    )
    assert outside == []
    assert visit.errors == []


def test_a_board_of_an_older_controller_has_a_table_and_pictures_and_no_empty_section(visit: Visit) -> None:
    visit.site.arena.votes.extend(some_votes())
    page = visit.open("/leaderboard")
    page.wait_for_selector(".agon-ranking")
    page.wait_for_selector(".agon-figures")
    assert page.locator(".agon-part, .agon-facts, .agon-why").count() == 0
    assert page.locator("#csv-ratings").count() == 1


def test_another_board_is_asked_for_and_its_data_can_be_downloaded(visit: Visit, full: FakeArena) -> None:
    page = visit.open("/leaderboard")
    page.wait_for_selector(".agon-history")
    page.click("#kind input")
    page.get_by_role("option", name="German").click()
    page.wait_for_selector("#csv-ratings[href*='board=lang_de']")
    page.get_by_label("Adjust for length").check()
    page.wait_for_selector("#csv-ratings[href*='style_control=true']")
    page.get_by_text("A longer answer: +18 points").wait_for()
    page.get_by_text(texts.METHOD).click()
    page.click("#versus input")
    page.get_by_role("option", name="Code").click()
    page.locator("#comparison", has_text="German (310 votes) and Code (1,250 votes)").wait_for()
    answer = page.request.get(visit.site.url + str(page.get_attribute("#csv-ratings", "href")))
    assert answer.headers["content-type"].startswith("text/csv")
    assert len(list(csv.reader(io.StringIO(answer.text())))) == 7
    for name, status in (("history", 200), ("nothing", 404)):
        assert page.request.get(f"{visit.site.url}{csv_files.PATH}/{name}.csv").status == status
    assert page.request.get(f"{visit.site.url}{csv_files.PATH}/ratings.csv?board=nope").status == 404
    assert visit.errors == []


def test_what_was_unfolded_stays_so_and_keeps_the_keyboard_when_a_new_vote_arrives(visit: Visit) -> None:
    arena = visit.site.arena
    arena.has_full_board = True
    try:
        page = visit.open("/leaderboard")
        page.locator("#why-unrated summary").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#why-unrated[open]")
        page.evaluate("document.querySelector('#why-unrated').dataset.old = ''")
        arena.num_more_votes = 1
        page.wait_for_selector("#why-unrated:not([data-old])[open]")
        page.locator(".agon-live", has_text="4,745 votes").wait_for()
        assert page.evaluate("document.activeElement.matches('#why-unrated summary')")
    finally:
        arena.has_full_board, arena.num_more_votes = False, 0
