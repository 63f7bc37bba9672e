"""The pages in a browser of another language: its words from the first load on, and a choice that keeps the battle."""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.webui.conftest import Visit
from webui import sentences, texts
from webui.languages import LANGUAGES, speaking
from webui.message_files import texts_of

MARKS = ("\ue000", "\ue001")


def language_of(page: Page) -> str:
    return str(page.evaluate("document.documentElement.lang"))


def choose(page: Page, language: str) -> None:
    """By keyboard, as everybody can."""
    page.locator(".agon-language summary").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name=texts_of(language)["LANGUAGE_NAME"], exact=True).focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")


@pytest.fixture
def in_french() -> Iterator[None]:
    with speaking("fr"):
        yield


french = pytest.mark.parametrize("visit", [{"locale": "fr-FR"}], indirect=True)


@french
def test_a_french_browser_gets_french_from_the_first_load_on(visit: Visit, in_french: None) -> None:
    page = visit.open()
    assert language_of(page) == "fr"
    page.get_by_role("heading", name=texts.BATTLE_TITLE).wait_for()
    visit.ask_and_wait("Bonjour")
    page.locator("#heads", has_text=texts.STATUS["finished"]).wait_for()
    page.locator("body > [role=status]", has_text=texts.BOTH_DONE).wait_for(state="attached")
    page.locator("#vote-up", has_text=texts.VOTES["tie"]).click()
    page.locator("#notice", has_text=sentences.chosen("tie")).wait_for()
    page.wait_for_selector(".agon-reveal")
    assert texts.VOTED["tie"] in page.inner_text(".agon-reveal")
    page.get_by_label(sentences.reason("style", "tie")).wait_for()
    visit.wait_until(lambda: texts.RATING_PENDING not in page.inner_text(".agon-reveal"))
    assert not any(mark in body for body in visit.bodies for mark in MARKS)
    assert visit.errors == []


@pytest.fixture
def full_board(visit: Visit) -> Iterator[None]:
    visit.site.arena.has_full_board = True
    yield
    visit.site.arena.has_full_board = False


@french
@pytest.mark.usefixtures("full_board")
def test_what_events_say_is_in_the_language_too(visit: Visit, in_french: None) -> None:
    page = visit.open()
    visit.ask("x" * 9000)
    page.locator("#notice", has_text=sentences.too_long(9000, 8000)).wait_for()
    page.goto(visit.site.url + "/leaderboard")
    page.locator("#board th", has_text=texts.COLUMN_WIN_RATE).wait_for()
    page.locator("#decided", has_text=texts.STATEMENTS_TITLE).wait_for()
    page.goto(visit.site.url + "/workers")
    page.locator("#board", has_text=texts.WORKER_STATES["ready"]).first.wait_for()
    assert not any(mark in body for body in visit.bodies for mark in MARKS)


@pytest.mark.usefixtures("slow_models")
def test_a_battle_goes_on_in_the_language_that_is_chosen_in_the_middle_of_it(visit: Visit) -> None:
    page = visit.open()
    assert language_of(page) == "en"
    visit.ask("slow, in English")
    page.wait_for_selector("#heads .agon-writing")
    choose(page, "ja")
    assert language_of(page) == "ja"
    with speaking("ja"):
        status = re.compile(
            "|".join(texts.STATUS[status] for status in ("writing", "finished"))
        )  # the page may come late
        page.locator("#heads", has_text=status).wait_for()
        assert "slow, in English" in page.inner_text(".user-row")
        page.fill("#prompt textarea", "a draft")
        choose(page, "de")
    visit.site.arena.delta_s = 0.001
    with speaking("de"):
        page.locator("#vote-right", has_text=texts.VOTES["b"]).click()
        page.wait_for_selector(".agon-reveal")
        assert texts.VOTED["b"] in page.inner_text(".agon-reveal")
        assert page.input_value("#prompt textarea") == "a draft"
        page.goto(visit.site.url + texts.HISTORY_PATH)
        page.get_by_role("heading", name=texts.HISTORY).wait_for()
    choose(page, "en")
    page.get_by_role("heading", name=texts.HISTORY).wait_for()
    assert visit.errors == []


def test_the_choice_names_itself_and_every_language_and_closes_with_escape(visit: Visit) -> None:
    page = visit.open()
    picker = page.locator(".agon-language summary")
    assert picker.get_attribute("aria-label") == f"{texts.LANGUAGE}: {texts.LANGUAGE_NAME}"
    picker.click()
    shown = page.locator(".agon-language button").all_inner_texts()
    assert shown == [texts_of(language)["LANGUAGE_NAME"] for language in LANGUAGES]
    page.wait_for_selector("[data-language=en][aria-current=true]")
    violations = Axe().run(page, context="#agon-top").response["violations"]
    assert [one["id"] for one in violations] == []
    page.keyboard.press("Escape")
    page.locator(".agon-language ul").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.matches('.agon-language summary')")


#: Texts that run out of the window or of their button. The names of the pages and wide parts of answers are scrolled.
_CUT = """() => [...document.querySelectorAll("#dock button, #dock p, #dock label, .agon-intro *, .agon-board-head *,"
  + " .agon-filters *, #board p, #board td, .agon-about *, main h1, main a")]
  .filter((one) => one.checkVisibility() && !one.closest(".agon-said, nav"))
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1
    || (one.tagName === "BUTTON" && one.scrollWidth > one.clientWidth + 1))
  .map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("visit", [{"locale": "de-DE", "viewport": {"width": 320, "height": 640}}], indirect=True)
def test_long_words_fit_into_the_smallest_window(visit: Visit) -> None:
    for path in (*texts.PAGES, texts.ABOUT_PATH, texts.HISTORY_PATH):
        page = visit.page
        page.goto(visit.site.url + path)
        page.wait_for_selector("#send, #board > *, .agon-about, main")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
        assert page.evaluate(_CUT) == [], path
        current = page.locator(".agon-header a[aria-current]")
        if current.count():  # scrolled into view where it is the last of many
            place = current.bounding_box()
            assert place is not None
            assert place["x"] + place["width"] <= 320
    visit.open()
    visit.ask_and_wait("Hallo")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 320
    assert visit.page.evaluate(_CUT) == []
    visit.page.locator(".agon-language summary").click()
    box = visit.page.locator(".agon-language ul").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 320


@french
def test_an_arabic_answer_in_a_french_page_begins_at_the_right(visit: Visit) -> None:
    page = visit.open()
    visit.ask_and_wait("raw \u0645\u0631\u062d\u0628\u0627 \u0628\u0643")
    block = page.locator("#thread .bot-row .prose > [dir=auto]").first
    block.wait_for()
    assert block.evaluate("(element) => getComputedStyle(element).direction") == "rtl"
    assert page.evaluate("getComputedStyle(document.documentElement).direction") == "ltr"


@french
def test_gradios_own_words_follow_the_language_that_was_chosen(visit: Visit) -> None:
    page = visit.open()
    choose(page, "zh")
    visit.ask_and_wait("12 + 30")
    page.locator("#thread button[title='清空对话']").wait_for(state="attached")
    copying = page.locator("#thread .bot-row button[title]")
    visit.wait_until(lambda: set(copying.evaluate_all("all => all.map((one) => one.title)")) == {"复制"})
    assert language_of(page) == "zh", "Gradio calls it zh-CN"
