"""What a visitor says about a vote: saved quietly, kept through reloads and failures, shown on the battle's page."""

from collections.abc import Generator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page

from tests.webui.conftest import Site, Visit
from webui import sentences, texts
from wire.errors import ErrorCode
from wire.feedback import GiveFeedback

STATE = ".agon-feedback-state"
SAVED = texts.FEEDBACK_STATES["saved"]
PHONE = {"viewport": {"width": 320, "height": 568}, "has_touch": True, "is_mobile": True}


@pytest.fixture(autouse=True)
def _takes_feedback(site: Site) -> Generator[None, None, None]:
    """Each test ends with an arena that takes feedback."""
    yield
    site.arena.feedback_failures.clear()


def voted(visit: Visit, button: str = "#vote-left") -> Page:
    """A page with a vote on A."""
    page = visit.open("/")
    visit.ask_and_wait("What is 12 + 30?")
    page.click(button)
    page.wait_for_selector(".agon-feedback[data-live]")
    return page


def said(visit: Visit) -> GiveFeedback:
    """What the arena has of the newest battle."""
    return list(visit.site.arena.battles.values())[-1].feedback


def shown(page: Page) -> dict[str, Any]:
    """What the block shows."""
    return {
        "reasons": page.locator(".agon-reason:has(:checked)").all_inner_texts(),
        "pressed": [button.get_attribute("title") for button in page.locator("[data-thumb][aria-pressed=true]").all()],
        "comment": page.input_value(".agon-comment textarea"),
    }


def test_reasons_thumbs_and_a_comment_are_saved_and_are_there_after_a_reload(visit: Visit) -> None:
    page = voted(visit)
    page.get_by_label(sentences.reason("accuracy", "a")).check()
    page.get_by_role("button", name=sentences.thumb("a", "up")).click()
    page.get_by_role("button", name=sentences.thumb("b", "up")).click()
    page.get_by_role("button", name=sentences.thumb("b", "down")).click()
    page.get_by_label(texts.FEEDBACK_COMMENT).fill("B <b>invents</b> a source.\nTwice.")
    page.get_by_label(texts.FEEDBACK_COMMENT).blur()
    visit.wait_until(lambda: said(visit).comment is not None)
    assert said(visit) == GiveFeedback(
        reasons=("accuracy",), comment="B <b>invents</b> a source.\nTwice.", thumbs={"a": "up", "b": "down"}
    )
    page.locator(STATE, has_text=SAVED).wait_for()
    before = shown(page)
    assert before["reasons"] == [sentences.reason("accuracy", "a")]
    page.reload()
    page.wait_for_selector(".agon-feedback[data-live]")
    assert shown(page) == before

    page.get_by_label(sentences.reason("accuracy", "a")).uncheck()
    page.get_by_role("button", name=sentences.thumb("a", "up")).click()
    visit.wait_until(lambda: said(visit).reasons == () and said(visit).thumbs == {"b": "down"})
    assert len(visit.site.arena.votes) > 0
    assert visit.errors == []


def test_the_block_is_used_by_keyboard_alone_and_leaves_the_prompt_alone(visit: Visit) -> None:
    page = voted(visit, "#vote-down")
    num_battles = len(visit.site.arena.battles)
    first = page.get_by_label(sentences.reason("helpfulness", "both_bad"))
    first.focus()
    page.keyboard.press("Space")
    for _ in range(4):
        page.keyboard.press("Tab")  # past three reasons to the first thumb
    page.keyboard.press("Enter")
    for _ in range(4):
        page.keyboard.press("Tab")
    page.keyboard.type("/ both wrong")
    page.keyboard.press("Enter")
    page.keyboard.type("really")
    visit.wait_until(lambda: said(visit).comment == "/ both wrong\nreally")
    assert said(visit).reasons == ("helpfulness",)
    assert said(visit).thumbs == {"a": "up"}
    assert page.input_value("#prompt textarea") == ""
    assert len(visit.site.arena.battles) == num_battles


def test_what_could_not_be_saved_is_said_kept_and_sent_again(visit: Visit) -> None:
    page = voted(visit)
    visit.site.arena.feedback_failures = [ErrorCode.STORE_UNAVAILABLE] * 2
    page.get_by_label(sentences.reason("style", "a")).check()
    page.locator(f"{STATE}.agon-failed").wait_for()
    page.locator(STATE, has_text=SAVED).wait_for()
    assert said(visit).reasons == ("style",)

    visit.site.arena.feedback_failures = [ErrorCode.STORE_UNAVAILABLE] * 1000
    page.route("**/feedback", lambda route: route.abort())
    page.get_by_label(texts.FEEDBACK_COMMENT).fill("kept by the browser")
    page.locator(f"{STATE}.agon-failed", has_text=texts.FEEDBACK_STATES["waiting"]).wait_for()
    page.reload()
    page.wait_for_selector(".agon-feedback[data-live]")
    assert shown(page)["comment"] == "kept by the browser"
    assert said(visit).comment is None
    page.unroute("**/feedback")
    visit.site.arena.feedback_failures.clear()
    visit.wait_until(lambda: said(visit).comment == "kept by the browser")
    page.locator(STATE, has_text=SAVED).wait_for()
    assert page.evaluate("localStorage.getItem('agon-feedback')") is None


def test_a_refusal_is_said_and_not_sent_again(visit: Visit) -> None:
    page = voted(visit)
    visit.site.arena.feedback_failures = [ErrorCode.FEEDBACK_FULL]
    page.get_by_label(sentences.reason("style", "a")).check()
    page.locator(f"{STATE}.agon-failed", has_text=texts.FAILURES[ErrorCode.FEEDBACK_FULL]).wait_for()
    assert page.evaluate("localStorage.getItem('agon-feedback')") is None
    assert visit.site.arena.feedback_failures == []
    assert said(visit).is_empty


def test_what_was_typed_last_is_sent_when_the_page_is_closed(visit: Visit) -> None:
    page = voted(visit)
    page.get_by_label(texts.FEEDBACK_COMMENT).fill("typed and gone")
    page.goto("about:blank")
    visit.wait_until(lambda: said(visit).comment == "typed and gone")


def test_the_battles_own_page_shows_and_changes_it_and_the_shared_page_does_not(visit: Visit) -> None:
    page = voted(visit)
    page.get_by_label(texts.FEEDBACK_COMMENT).fill("for the operator alone")
    visit.wait_until(lambda: said(visit).comment is not None)
    battle = list(visit.site.arena.battles.values())[-1]
    page.goto(f"{visit.site.url}{texts.HISTORY_PATH}/{battle.id}")
    page.wait_for_selector(".agon-feedback[data-live]")
    assert shown(page)["comment"] == "for the operator alone"
    page.get_by_role("button", name=sentences.thumb("b", "up")).click()
    page.locator(STATE, has_text=SAVED).wait_for()
    assert battle.feedback.thumbs == {"b": "up"}
    page.click("#share")
    link = page.locator("#link").get_attribute("href")
    other = httpx.get(f"{visit.site.url}{link}")
    assert other.status_code == 200
    assert "operator alone" not in other.text
    assert "data-feedback=" not in other.text


@pytest.mark.parametrize("visit", [PHONE], indirect=True)
def test_it_is_one_line_on_a_small_phone_and_unfolded_it_fits(visit: Visit) -> None:
    page = voted(visit)
    block = page.locator(".agon-feedback")
    assert block.bounding_box()["height"] < 64  # type: ignore[index]
    assert not page.get_by_label(sentences.reason("style", "a")).is_visible()
    page.locator(".agon-feedback summary").tap()
    page.get_by_label(sentences.reason("style", "a")).check()
    visit.wait_until(lambda: said(visit).reasons == ("style",))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    rights = "[...document.querySelectorAll('.agon-feedback *')].map((it) => it.getBoundingClientRect().right)"
    assert page.evaluate(f"Math.max(...{rights}) <= innerWidth")


@pytest.mark.parametrize("body", [b"{", b'{"reasons": ["x"]}', b'{"comment": "' + b"x" * 16_000 + b'"}'])
def test_a_body_that_is_no_feedback_is_refused_in_words(visit: Visit, body: bytes) -> None:
    path = f"{visit.site.url}{texts.HISTORY_PATH}/battle-1/feedback"
    answer = httpx.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["sentence"] in (texts.FAILURE_OTHER, texts.FAILURES[ErrorCode.INVALID_REQUEST])
