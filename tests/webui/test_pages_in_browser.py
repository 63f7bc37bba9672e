"""The pages as a visitor uses them, in Chromium."""

import re
from typing import Any

import pytest
from playwright.sync_api import Route

from tests.webui.conftest import Visit
from tests.webui.fake_admin import ADMIN_TOKEN
from tests.webui.fake_answers import MODELS, STORY
from tests.webui.fake_controller import FakeBattle
from webui import texts
from webui.page_sessions import PageSessions
from wire.model_cards import BoardCard

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DARK_PHONE = {**PHONE, "color_scheme": "dark"}
PATHS = list(texts.PAGES)


def test_an_anonymous_battle_of_three_turns_ends_with_the_reveal_and_reaches_the_leaderboard(visit: Visit) -> None:
    page = visit.open("/")
    num_votes = len(visit.site.arena.votes)
    page.get_by_role("button", name=texts.EXAMPLES[0]).click()
    page.wait_for_selector("#vote-left")
    visit.ask_and_wait("What is 12 + 30?")
    page.locator("#thread .bot-row pre code").wait_for()
    page.locator("#thread .bot-row .katex").first.wait_for()
    visit.ask_and_wait("My name is Ada. What is my name?")
    assert page.locator("#thread .user-row").count() == 3
    assert page.locator("#thread .bot-row").count() == 6

    seen = "".join(visit.bodies)
    assert "I am well, thank you" in seen  # the answers came this way, so names would have been seen too
    assert not any(name in seen for name in MODELS)
    assert not any(name in page.content() for name in MODELS)

    visit.vote_with("ArrowRight")
    names = page.locator(".agon-reveal .agon-name").all_inner_texts()
    assert len(set(names) & set(MODELS)) == 2
    assert len(visit.site.arena.votes) == num_votes + 1
    assert visit.site.arena.votes[-1] == (*names, "b")
    # the newer models of a board have no rank and show no change
    page.locator(".agon-standing", has_text=re.compile(r"\d")).first.wait_for()

    page.goto(visit.site.url + "/leaderboard")
    page.locator(".agon-ranking", has_text=names[1]).wait_for()
    assert {url.split("/")[2] for url in visit.urls if not url.startswith(("data:", "blob:"))} == {
        visit.site.url.removeprefix("http://")
    }
    assert visit.errors == []


def test_a_reload_in_the_middle_goes_on_with_the_same_answers(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask("slow: tell me a story")
    page.locator("#thread .bot-row .md", has_text="Once there").wait_for()
    page.reload()
    page.wait_for_selector("#vote-left")
    assert " ".join(visit.answers()[0].split()) == " ".join(STORY.split())
    visit.vote_with("ArrowUp")
    page.reload()
    page.wait_for_selector(".agon-reveal")
    assert texts.VOTED["tie"] in page.inner_text(".agon-reveal")


def test_a_page_whose_session_was_forgotten_goes_on_with_its_battle_and_its_chat(
    visit: Visit, sessions: PageSessions
) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    sessions.session_data.clear()
    visit.ask_and_wait("What is 12 + 30?")
    assert page.locator("#thread .user-row").count() == 2
    sessions.session_data.clear()
    visit.vote_with("ArrowRight")
    assert texts.VOTED["b"] in page.inner_text(".agon-reveal")
    visit.open("/chat")
    page.wait_for_function(f"document.querySelector('#model input')?.value === '{MODELS[0]}'")
    visit.ask("Hello!")
    page.wait_for_selector("#retry")
    sessions.session_data.clear()
    visit.ask("What is 12 + 30?")
    page.locator("#thread .user-row").nth(1).wait_for()
    page.wait_for_selector("#retry")
    assert "I am well" in visit.answers()[0]


def test_an_event_that_is_refused_for_its_rate_is_sent_again_by_the_page(visit: Visit) -> None:
    page = visit.open("/")
    refused: list[str] = []

    def refuse_twice(route: Route) -> None:
        if len(refused) < 2:
            refused.append(route.request.url)
            route.fulfill(status=429, headers={"Retry-After": "1"}, json={"error": {}, "detail": "later"})
        else:
            route.continue_()

    page.route("**/gradio_api/queue/join*", refuse_twice)
    visit.ask_and_wait("Hello!")
    assert len(refused) == 2


#: The end of an event stream arrives late, as it may on a busy machine.
_LATE_END = """
const read = window.fetch;
window.fetch = async (input, init) => {
  const response = await read(input, init);
  if (!String(input.url ?? input).includes("/queue/data")) return response;
  const late = new TransformStream({
    async transform(part, controller) {
      if (new TextDecoder().decode(part).includes("close_stream")) {
        window.numEnds = (window.numEnds ?? 0) + 1;
        await new Promise((resolve) => setTimeout(resolve, 1200));
      }
      controller.enqueue(part);
    },
  });
  return new Response(response.body.pipeThrough(late), { status: response.status, headers: response.headers });
};
"""


def test_an_event_that_crosses_the_end_of_the_stream_is_answered_all_the_same(visit: Visit) -> None:
    """The page waited for ever: for this event, and for every later one of its kind."""
    visit.page.add_init_script(_LATE_END)
    page = visit.open("/")
    page.wait_for_function("window.numEnds === 1")  # of the event that loads the page; Gradio has not read it
    visit.ask_and_wait("Hello!")
    assert "I am well" in visit.answers()[0]
    assert visit.errors == []


def test_a_new_battle_is_not_replaced_by_the_ratings_of_the_one_before(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    arena = visit.site.arena
    arena.holds_boards_after = len(arena.votes)
    page.click("#vote-left")
    page.wait_for_selector(".agon-reveal")
    page.click("#new")
    page.locator("#thread .user-row").first.wait_for(state="detached")
    visit.ask_and_wait("What is the capital of France?")
    arena.holds_boards_after = None
    visit.ask_and_wait("What is 12 + 30?")
    asked = page.locator("#thread .user-row .md").all_inner_texts()
    assert [one.strip() for one in asked] == ["What is the capital of France?", "What is 12 + 30?"]


def test_typed_text_survives_a_reload_and_a_sent_one_does_not_come_back(visit: Visit) -> None:
    page = visit.open("/")
    page.fill("#prompt textarea", "a longer thought")
    page.reload()
    visit.wait_until(lambda: page.input_value("#prompt textarea") == "a longer thought")
    visit.ask_and_wait(" and its end")
    page.reload()
    page.wait_for_selector("#vote-left")
    assert page.input_value("#prompt textarea") == ""


def test_a_failed_side_says_so_and_cannot_be_voted_on(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask("fail b please")
    page.locator("#notice", has_text=texts.TURN_FAILED).wait_for()
    assert texts.FAILED_SIDE in visit.answers()[1]
    assert page.locator("#vote-left").count() == 0
    seen = "".join(visit.bodies)
    assert texts.FAILED_SIDE in seen
    assert not any(name in seen for name in MODELS)  # the fake's own error text does name one
    page.click("#new")
    page.get_by_role("heading", name=texts.BATTLE_TITLE).wait_for()


EVIL = (
    "raw <img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script> <b onclick='hacked=1'>bold</b> "
    "[link](javascript:window.hacked=1) <iframe src=//evil.example></iframe> ![p](http://evil.example/p.png) safe words"
)


def test_nothing_that_a_model_or_a_visitor_writes_runs_or_calls_out(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait(EVIL)
    page.wait_for_timeout(300)
    assert "safe words" in visit.answers()[0]
    assert page.evaluate("window.hacked") is None
    assert "<script>window.hacked=1</script>" in visit.answers()[0]  # the text of it is there
    assert page.locator("#thread :is(script, img, iframe, [onclick], [onerror], a[href^='javascript'])").count() == 0
    reached = page.evaluate("performance.getEntriesByType('resource').filter(e => e.responseStatus).map(e => e.name)")
    assert not any("evil.example" in url for url in reached)


def test_the_end_of_the_answers_is_spoken_and_a_button_that_goes_hands_the_keyboard_on(visit: Visit) -> None:
    page = visit.open("/")
    page.locator(".agon-example").first.focus()
    page.keyboard.press("Enter")
    page.locator("body > [role=status]", has_text=texts.BOTH_DONE).wait_for(state="attached")
    assert page.evaluate("document.activeElement.closest('#prompt') !== null")
    page.focus("#vote-up")
    page.keyboard.press("Enter")
    page.wait_for_selector(".agon-reveal")
    page.wait_for_function("document.activeElement.closest('#prompt') !== null")


def test_arrow_keys_do_not_vote_while_the_visitor_types(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    page.wait_for_timeout(600)
    page.fill("#prompt textarea", "a longer thought")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Shift+ArrowUp")
    page.wait_for_timeout(400)
    assert page.locator("#vote-left").count() == 1
    assert page.locator(".agon-reveal").count() == 0


@pytest.mark.usefixtures("slow_models")
def test_what_is_typed_while_the_models_answer_stays_in_the_box(visit: Visit) -> None:
    page = visit.open("/")
    page.fill("#prompt textarea", "slow: tell me a story")
    page.keyboard.press("Control+Enter")
    page.locator("#thread .bot-row .md", has_text="Once").wait_for()
    visit.ask("And then?")
    page.click("#stop")
    page.wait_for_selector("#vote-left")
    assert page.input_value("#prompt textarea") == "And then?"
    assert page.locator("#thread .user-row").count() == 1


def test_pages_where_models_are_chosen_say_that_there_are_none_and_show_the_first_that_come(visit: Visit) -> None:
    arena = visit.site.arena
    models = arena.models
    try:
        arena.models = ()
        page = visit.open("/chat")
        page.locator("#models-hint", has_text=texts.NO_MODELS).wait_for()
        visit.open("/side-by-side")
        arena.models = models[:1]
        page.locator("#models-hint", has_text=texts.FAILURES["not_enough_models"]).wait_for()
    finally:
        arena.models = models
    page.wait_for_function(f"document.querySelector('#model-b input')?.value === '{MODELS[1]}'")
    visit.wait_until(lambda: page.locator("#models-hint .agon-notice").count() == 0)


@pytest.mark.usefixtures("slow_models")
def test_stop_ends_both_answers(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask("slow: tell me a story")
    page.locator("#thread .bot-row .md", has_text="Once").wait_for()
    page.click("#stop")
    page.wait_for_selector("#vote-left")
    assert len(visit.answers()[0]) < len(STORY)
    assert texts.STATUS["stopped"] in page.inner_text("#heads")


def test_a_box_beside_the_vote_gives_consent_and_takes_no_arrow_key(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    page.get_by_label(texts.CONSENT).check()
    visit.vote_with("ArrowLeft")
    assert visit.site.arena.consents[-1] is True


@pytest.mark.usefixtures("slow_models")
def test_nothing_moves_while_text_streams(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    visit.ask("slow: tell me a story")
    page.locator("#thread .bot-row .md", has_text="Once").nth(0).wait_for()

    def top() -> int:
        box = page.locator("#thread .bot-row").nth(2).bounding_box()
        assert box is not None
        page.wait_for_timeout(150)
        return round(box["y"])

    visit.wait_until(lambda: 0 < top() < 260 and top() == top() == top())  # the new question has moved to its place
    assert len({top() for _ in range(6)}) == 1
    page.click("#stop")
    page.wait_for_selector("#vote-left")
    assert len(visit.answers()[2]) < len(STORY), "it was looked at while it streamed"


def test_two_named_models_side_by_side(visit: Visit) -> None:
    page = visit.open("/side-by-side")
    page.wait_for_function(f"document.querySelector('#model-b input')?.value === '{MODELS[1]}'")
    visit.ask_and_wait("Hello!")
    assert page.locator("#heads .agon-name").all_inner_texts() == list(MODELS[:2])
    visit.vote_with("ArrowDown")
    assert texts.VOTED["both_bad"] in page.inner_text(".agon-reveal")


@pytest.mark.parametrize("visit", [DARK_PHONE], indirect=True)
def test_a_phone_stacks_the_answers_and_never_scrolls_sideways(visit: Visit) -> None:
    page = visit.open("/")
    page.tap(".agon-example >> nth=1")
    page.wait_for_selector("#vote-left")
    boxes = [page.locator("#thread .bot-row").nth(side).bounding_box() for side in (0, 1)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["x"] == boxes[1]["x"]
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]
    small = page.evaluate(
        "[...document.querySelectorAll('button, a, textarea')].filter(e => e.checkVisibility() && !e.closest('.prose'))"
        ".filter(e => e.getBoundingClientRect().height < 44).map(e => e.outerHTML.slice(0, 120))"
    )
    assert small == []
    page.tap("#vote-up")
    page.wait_for_selector(".agon-reveal")
    for path in PATHS:
        visit.open(path)
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path


def test_a_tab_is_named_after_its_page(visit: Visit) -> None:
    page = visit.open("/leaderboard")
    page.wait_for_function(f"document.title === 'Leaderboard - {texts.BRAND}'")
    page.goto(visit.site.url)
    page.get_by_role("link", name=texts.ABOUT_LINK).click()
    page.wait_for_function(f"document.title === '{texts.ABOUT_TITLE} - {texts.BRAND}'")
    page.get_by_text(texts.ABOUT[1]["paragraphs"][0]).wait_for()
    assert visit.errors == []


def test_the_chosen_theme_is_kept(visit: Visit) -> None:
    page = visit.open("/workers")
    page.click("[data-agon=theme]")
    assert page.evaluate("document.body.classList.contains('dark')")
    page.goto(visit.site.url + "/leaderboard")
    page.wait_for_selector("#board")
    assert page.evaluate("document.body.classList.contains('dark')")


def _enter_admin_token(page: Any, token: str = ADMIN_TOKEN) -> None:
    page.get_by_text(texts.OPERATOR).click()
    box = page.locator("#token input")
    while box.input_value() != token:  # Gradio empties a box once, a moment after it has opened
        box.fill(token)
        page.wait_for_timeout(200)
    box.press("Enter")


def test_the_workers_page_shows_no_figure_without_the_admin_token(visit: Visit) -> None:
    page = visit.open("/workers")
    page.wait_for_selector(".agon-worker")
    assert page.locator(".agon-worker dl, .agon-pool-box, .agon-legend").count() == 0
    _enter_admin_token(page, "not the token")
    page.get_by_text(texts.WRONG_ADMIN_TOKEN).wait_for()
    assert page.locator(".agon-worker dl, .agon-pool-box").count() == 0


def test_the_workers_page_shows_page_pools_to_the_admin_and_stays_live(visit: Visit) -> None:
    arena = visit.site.arena
    page = visit.open("/workers")
    page.wait_for_selector(".agon-worker")
    _enter_admin_token(page)
    page.wait_for_selector(".agon-pool")
    assert page.locator(".agon-pool").count() == 2, "of four workers two show their pools"
    assert page.locator(".agon-pool-box li .agon-key").count() == 1 + 3
    before = page.locator(".agon-pool title").first.text_content()
    arena.battles["running"] = FakeBattle("running", "anonymous", MODELS[:2], state="streaming")
    try:
        page.wait_for_function(
            "before => document.querySelector('.agon-pool title').textContent !== before", arg=before
        )
    finally:
        del arena.battles["running"]


@pytest.mark.parametrize("visit", [{"viewport": {"width": 390, "height": 844}}], indirect=True, ids=["phone"])
def test_a_pool_fits_a_phone_and_its_squares_can_be_told_apart(visit: Visit) -> None:
    page = visit.open("/workers")
    page.wait_for_selector(".agon-worker")
    _enter_admin_token(page)
    page.wait_for_selector(".agon-pool")
    box = page.locator(".agon-pool").first.bounding_box()
    assert box is not None
    assert box["width"] / 32 >= 8
    assert box["x"] + box["width"] <= 390


def test_a_page_offers_the_prompts_of_the_served_models_cards(visit: Visit) -> None:
    cards = visit.site.arena.cards
    cards.append(BoardCard(model=MODELS[0], starter_prompts=("What is a fugue?",)))
    try:
        page = visit.page
        visit.open("/")
        example = page.get_by_role("button", name="What is a fugue?")
        while not example.count():  # the web UI asks for the cards now and then
            page.wait_for_timeout(500)
            page.reload()
            page.wait_for_selector("#send")
            page.wait_for_load_state("networkidle")
        assert page.locator(".agon-example:visible").count() == 1
        example.click()
        page.locator("#thread .user-row", has_text="What is a fugue?").wait_for()
    finally:
        cards.clear()
