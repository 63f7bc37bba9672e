"""What a visitor reads, measured in Chromium: nothing is cut, broken or in the wrong direction, and nothing flashes."""

import io

import pytest
from PIL import Image
from playwright.sync_api import Page, Route

from tests.webui.conftest import Visit
from webui import texts

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
NARROW = {"viewport": {"width": 320, "height": 568}, "has_touch": True, "is_mobile": True}
ZOOMED = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}  # 1280 x 800 at 200 %
DARK = {"color_scheme": "dark"}

#: The words of table cells that stand on two lines.
_BROKEN_WORDS = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll(":is(#thread .prose, article) :is(th, td)")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      for (const { 0: word, index } of texts.currentNode.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
        const range = document.createRange();
        range.setStart(texts.currentNode, index);
        range.setEnd(texts.currentNode, index + word.length);
        const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (tops.size > 1) broken.push(word);
      }
    }
  }
  return broken;
}"""
#: Blocks of the answers that stick out of their card, unless they are scrolled in themselves.
_OUTSIDE = """() => [...document.querySelectorAll("#thread .bot-row")].flatMap((card) => {
  const { left, right } = card.getBoundingClientRect();
  const isScrolled = (element) => element.closest("pre, table, .katex-display");
  return [...card.querySelectorAll(".prose *, .katex-display, table, pre")]
    .filter((one) => isScrolled(one) === null || isScrolled(one) === one)
    .filter((one) => [...one.getClientRects()].some((box) => box.right > right + 1 || box.left < left - 1))
    .map((one) => one.outerHTML.slice(0, 80));
})"""
#: Which of the wide blocks cannot be scrolled, with a mouse or with the keyboard.
_CUT = """() => [...document.querySelectorAll("#thread .prose :is(pre, table, .katex-display)")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .filter((one) => !["auto", "scroll"].includes(getComputedStyle(one).overflowX) || one.tabIndex !== 0)
  .map((one) => one.outerHTML.slice(0, 80))"""


def _compare(visit: Visit) -> Page:
    page = visit.open("/")
    visit.ask_and_wait("compare")
    page.locator("#thread .bot-row table").nth(1).wait_for()
    page.locator("#thread pre[tabindex]").wait_for()
    page.locator("#thread .bot-row .katex-display").wait_for()  # its program is loaded when the first formula comes
    page.evaluate("document.fonts.ready")
    return page


@pytest.mark.parametrize("visit", [PHONE, {}], indirect=True, ids=["phone", "wide"])
def test_no_word_of_a_table_is_broken_and_nothing_sticks_out_of_its_card(visit: Visit) -> None:
    page = _compare(visit)
    assert page.locator("#thread .bot-row .katex-display").count() == 1
    assert page.evaluate(_BROKEN_WORDS) == []
    assert page.evaluate(_OUTSIDE) == []
    assert page.evaluate(_CUT) == []


def test_lists_tables_and_quotations_of_right_to_left_text_begin_at_the_right(visit: Visit) -> None:
    page = _compare(visit)
    blocks = page.locator("#thread .bot-row").nth(1).locator(".prose > :is(ul, ol, table, blockquote, p)")
    kinds = blocks.evaluate_all("found => found.map((one) => [one.tagName, getComputedStyle(one).direction])")
    assert {kind for kind, _ in kinds} == {"P", "UL", "OL", "TABLE", "BLOCKQUOTE"}
    assert {direction for _, direction in kinds} == {"rtl"}
    space = blocks.evaluate_all(
        "found => found.map((one) => "
        "one.parentElement.getBoundingClientRect().right - one.getBoundingClientRect().right)"
    )
    assert max(space) < 30, "the table, too, is at the right edge"
    left = page.locator("#thread .bot-row").first.locator(".prose > p").first
    assert left.evaluate("one => getComputedStyle(one).direction") == "ltr"
    visit.ask_and_wait("\u05e9\u05dc\u05d5\u05dd")
    question = page.locator("#thread .user-row .prose").last
    assert question.evaluate("one => getComputedStyle(one).direction") == "rtl"


@pytest.mark.parametrize("visit", [PHONE, {}], indirect=True, ids=["phone", "wide"])
def test_a_battles_own_page_is_as_readable_as_the_battle(visit: Visit) -> None:
    visit.open("/")
    visit.ask_and_wait("compare")
    page = visit.page
    page.goto(f"{visit.site.url}{texts.HISTORY_PATH}")
    page.locator(".battles a").first.click()
    page.wait_for_selector(".side-b table")
    assert page.evaluate(_BROKEN_WORDS) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    blocks = page.locator(".side-b > :is(ul, ol, table, blockquote, p)")
    kinds = blocks.evaluate_all("found => found.map((one) => [one.tagName, getComputedStyle(one).direction])")
    assert {kind for kind, _ in kinds} == {"P", "UL", "OL", "TABLE", "BLOCKQUOTE"}
    assert {direction for _, direction in kinds} == {"rtl"}
    assert page.locator(".side-a > p").first.evaluate("one => getComputedStyle(one).direction") == "ltr"
    space = page.locator(".side-b > table").evaluate(
        "one => one.parentElement.getBoundingClientRect().right - one.getBoundingClientRect().right"
    )
    assert space < 30, "the table is at the right edge"


@pytest.mark.parametrize("visit", [PHONE, {}], indirect=True, ids=["phone", "wide"])
def test_no_blank_is_left_below_the_text_of_a_card(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("compare")
    blank = page.locator("#thread .bot-row").first.evaluate(
        "card => card.getBoundingClientRect().bottom - card.querySelector('.prose').getBoundingClientRect().bottom"
    )
    assert 0 < blank <= 24


@pytest.mark.parametrize("visit", [NARROW, ZOOMED], indirect=True, ids=["320", "200-percent"])
def test_the_answers_have_most_of_a_small_window(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    dock = page.locator("#dock").bounding_box()
    assert dock is not None
    height = page.evaluate("innerHeight")
    assert dock["height"] <= 0.4 * height
    stuck = page.evaluate(
        "[...document.querySelectorAll('#agon-top, #heads')]"
        ".filter((one) => getComputedStyle(one).position === 'sticky')"
        ".map((one) => one.getBoundingClientRect().height).reduce((sum, one) => sum + one, 0)"
    )
    assert height - dock["height"] - stuck >= 9 * 26, "nine lines of text"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#thread .bot-row .md").first.scroll_into_view_if_needed()
    page.get_by_text("I am well, thank you").click(timeout=5000)  # nothing covers it
    # A mouse needs less room than a finger.
    cut = page.evaluate(
        "[...document.querySelectorAll('#dock button')].filter((one) => one.checkVisibility())"
        ".filter((one) => one.scrollWidth > one.clientWidth || one.getBoundingClientRect().height < "
        "(matchMedia('(pointer: coarse)').matches ? 44 : 24))"
        ".map((one) => [one.textContent, one.scrollWidth, one.clientWidth, one.getBoundingClientRect().height])"
    )
    assert cut == []


@pytest.mark.parametrize("visit", [NARROW, ZOOMED], indirect=True, ids=["320", "200-percent"])
def test_a_second_question_begins_at_the_top_of_a_small_window(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("tell me a story")
    visit.ask_and_wait("tell me another story")
    page.wait_for_function("document.querySelectorAll('#thread .user-row')[1].getBoundingClientRect().top < 8")


@pytest.mark.parametrize("visit", [PHONE, ZOOMED, {}], indirect=True, ids=["phone", "200-percent", "wide"])
def test_the_answer_of_a_chat_is_in_sight_below_its_open_settings(visit: Visit) -> None:
    page = visit.open("/chat")
    page.wait_for_function("document.querySelector('#model input')?.value")
    page.get_by_text(texts.PARAMETERS).click()
    page.get_by_label(texts.OWN_PARAMETERS).uncheck()
    page.locator(".agon-sliders input[type=range]").first.wait_for()
    visit.ask("What is the capital of France?")
    page.wait_for_selector("#retry")
    page.wait_for_function(
        "document.querySelector('#thread .bot-row .md').getBoundingClientRect().bottom "
        "< document.querySelector('#dock').getBoundingClientRect().top"
    )
    assert page.locator("#thread .user-row").evaluate("one => one.getBoundingClientRect().top") > -1
    page.click("#new")
    page.get_by_role("heading", name=texts.DIRECT_TITLE).wait_for()
    visit.ask("Hello!")
    page.wait_for_selector("#retry")
    assert page.locator("#thread .user-row").evaluate("one => one.getBoundingClientRect().top") > -1


def test_the_first_question_of_a_chat_stays_where_it_is_if_its_answer_is_in_sight(visit: Visit) -> None:
    page = visit.open("/chat")
    page.wait_for_function("document.querySelector('#model input')?.value")
    visit.ask("What is the capital of France?")
    page.wait_for_selector("#retry")
    assert page.evaluate("scrollY") == 0


#: The colours of the page and whether its introduction is to be seen, at every frame.
_WATCH = """
window.agonSeen = { grounds: new Set(), intro: 0 };
(function look() {
  if (document.body) {
    for (const one of [document.documentElement, document.body]) {
      const ground = getComputedStyle(one).backgroundColor;
      if (ground !== "rgba(0, 0, 0, 0)") window.agonSeen.grounds.add(ground);
    }
    const intro = document.querySelector(".agon-intro");
    if (intro && intro.checkVisibility({ visibilityProperty: true })) window.agonSeen.intro += 1;
  }
  requestAnimationFrame(look);
})();
"""
_PAPER_OF_DARK = "rgb(19, 21, 25)"


@pytest.mark.parametrize("visit", [DARK, {"color_scheme": "light"}], indirect=True, ids=["system", "chosen"])
def test_a_dark_page_is_dark_from_its_first_frame(visit: Visit, request: pytest.FixtureRequest) -> None:
    page = visit.page
    if "chosen" in request.node.name:
        visit.open("/leaderboard")
        page.evaluate("localStorage.setItem('agon-theme', 'dark')")
    page.add_init_script(_WATCH)
    visit.open("/")
    page.wait_for_function("document.body.classList.contains('dark')")
    assert page.evaluate("[...agonSeen.grounds]") == [_PAPER_OF_DARK]
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


#: What the browser stores of the battle.
_STORED = "() => JSON.stringify(Object.entries(localStorage).filter(([key]) => !key.startsWith('agon-talking')).sort())"


def test_a_reload_shows_no_introduction_before_the_battle(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    page.add_init_script(_WATCH)
    page.reload()
    page.wait_for_selector("#vote-left")
    assert page.evaluate("agonSeen.intro") == 0
    stored = page.evaluate(_STORED)
    page.click("#new")
    page.get_by_role("heading", name=texts.BATTLE_TITLE).wait_for()
    # The browser forgets the battle, some time later: it came back with the next load.
    page.wait_for_function(f"(before) => ({_STORED})() !== before", arg=stored)
    page.reload()
    page.get_by_role("heading", name=texts.BATTLE_TITLE).wait_for()


@pytest.mark.parametrize("visit", [DARK], indirect=True)
def test_the_track_of_a_slider_is_dark_in_the_dark(visit: Visit) -> None:
    page = visit.open("/chat")
    page.get_by_text(texts.PARAMETERS).click()
    page.get_by_label(texts.OWN_PARAMETERS).uncheck()
    slider = page.locator(".agon-sliders input[type=range]").first
    slider.scroll_into_view_if_needed()
    picture = Image.open(io.BytesIO(slider.screenshot())).convert("RGB")
    column = [picture.getpixel((round(picture.width * 0.9), y)) for y in range(picture.height)]
    assert (74, 80, 91) in column, "the part right of the thumb, in the colour of --agon-slider-track"


def test_an_event_that_failed_is_told_in_a_line_of_ours(visit: Visit) -> None:
    page = visit.open("/")

    def fail(route: Route) -> None:
        route.fulfill(status=500, json={"detail": "no"})

    page.route("**/gradio_api/queue/join*", fail)
    visit.ask("Hello!")
    page.locator("#agon-toast[role=alert]", has_text=texts.EVENT_FAILED).wait_for()
    assert page.locator(".toast-wrap").evaluate_all("found => found.filter((one) => one.checkVisibility()).length") == 0
    page.get_by_role("button", name=texts.CLOSE, exact=True).click()
    page.locator("#agon-toast:empty").wait_for(state="attached")


@pytest.mark.parametrize("visit", [PHONE], indirect=True)
def test_a_count_of_votes_and_its_word_are_apart(visit: Visit) -> None:
    visit.site.arena.has_full_board = True
    try:
        page = visit.open("/leaderboard")
        page.wait_for_selector(".agon-ranking")
        cells = page.locator("td.agon-col-votes").all_inner_texts()
    finally:
        visit.site.arena.has_full_board = False
    assert cells
    assert all(" vote" in cell for cell in cells)
