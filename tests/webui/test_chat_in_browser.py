"""The Chat page in a browser: what a visitor finds again, who said what, and what every model is told."""

import asyncio
import re
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.webui.conftest import Visit
from tests.webui.fake_answers import MODELS, STORY
from tests.webui.fake_chats import FakeChat
from webui import texts
from webui.page_sessions import PageSessions
from webui.quiet_blocks import QuietBlocks

OTHER = MODELS[2]


def opened(visit: Visit) -> Page:
    page = visit.open("/chat")
    page.wait_for_function("document.querySelector('#model input')?.value")
    return page


@pytest.fixture
def slow_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the end of an event shows comes a second late, also of a page's load."""
    process_api = QuietBlocks.process_api

    async def process_late(self: QuietBlocks, block_fn: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        done = await process_api(self, block_fn, *args, **kwargs)
        if block_fn.name not in ("begin", "follow", "restore", "fill"):
            await asyncio.sleep(1)
        return done

    monkeypatch.setattr(QuietBlocks, "process_api", process_late)


def choose(page: Page, model: str) -> None:
    page.click("#model input")
    page.get_by_role("option", name=model).click()


def names(page: Page) -> list[str]:
    return page.locator("#thread .agon-by b").all_inner_texts()


def newest(visit: Visit) -> FakeChat:
    return list(visit.site.arena.chats.values())[-1]


@pytest.mark.usefixtures("slow_models")
def test_a_reload_in_the_middle_of_an_answer_loses_nothing(visit: Visit, sessions: PageSessions) -> None:
    page = opened(visit)
    choose(page, OTHER)
    visit.ask("slow: tell me a story")
    page.locator("#thread .bot-row .md", has_text="Once there").wait_for()
    sessions.session_data.clear()  # as after a restart of the web UI
    page.reload()
    page.locator("#thread .user-row", has_text="tell me a story").wait_for()
    page.locator("#thread .bot-row .md", has_text="Once there").wait_for()
    assert page.locator("#stop").is_visible(), "the answer was still written"
    visit.site.arena.delta_s = 0.001
    page.wait_for_selector("#retry")
    assert " ".join(visit.answers()[0].split()).endswith(" ".join(STORY.split()))
    assert page.input_value("#model input") == OTHER
    assert names(page) == [OTHER]
    assert [turn.content for turn in newest(visit).turns] == ["slow: tell me a story"]


def test_each_answer_has_its_model_and_the_choice_outlives_a_reload(visit: Visit) -> None:
    page = opened(visit)
    visit.ask("Hello!")
    page.wait_for_selector("#retry")
    choose(page, OTHER)
    page.wait_for_function("localStorage.length > 0")
    visit.ask("What is 12 + 30?")
    page.locator("#thread .user-row").nth(1).wait_for()
    page.wait_for_selector("#retry")
    visit.wait_until(lambda: names(page) == [MODELS[0], OTHER])
    stored = "() => JSON.stringify(localStorage)"
    before = page.evaluate(stored)
    choose(page, MODELS[1])
    page.wait_for_function(f"(before) => ({stored})() !== before", arg=before)
    page.reload()
    page.wait_for_selector("#retry")
    assert names(page) == [MODELS[0], OTHER]
    visit.wait_until(lambda: page.input_value("#model input") == MODELS[1])


@pytest.mark.usefixtures("slow_models")
def test_a_model_that_is_chosen_while_another_one_answers_outlives_a_reload(visit: Visit) -> None:
    page = opened(visit)
    visit.ask("slow: tell me a story")
    page.locator("#thread .bot-row .md", has_text="Once there").wait_for()
    with page.expect_response(lambda response: "/queue/join" in response.url):
        choose(page, OTHER)
    page.wait_for_timeout(500)  # the next pieces of the answer come
    visit.site.arena.delta_s = 0.001
    page.wait_for_selector("#retry")
    page.reload()
    page.wait_for_selector("#retry")
    assert names(page) == [MODELS[0]]
    visit.wait_until(lambda: page.input_value("#model input") == OTHER)


def test_a_system_prompt_is_set_before_the_first_question_and_shown_from_then_on(visit: Visit) -> None:
    page = opened(visit)
    page.get_by_role("button", name=texts.CHAT_SYSTEM).click()
    visit.write("#system textarea", "Answer as a pirate.")
    visit.ask("Hello!")
    page.wait_for_selector("#retry")
    assert newest(visit).system_prompt == "Answer as a pirate."
    page.reload()
    page.wait_for_selector("#retry")
    fold = page.get_by_role("button", name=texts.CHAT_SYSTEM)
    if not page.locator("#system textarea").is_visible():
        fold.click()
    assert page.input_value("#system textarea") == "Answer as a pirate."
    assert page.locator("#system textarea").is_disabled()
    page.click("#new")
    visit.wait_until(lambda: not page.locator("#system textarea").is_disabled())
    assert page.input_value("#system textarea") == ""


@pytest.mark.usefixtures("slow_models", "slow_pages")
def test_a_question_that_is_asked_before_the_page_is_loaded_stays_and_can_be_stopped(visit: Visit) -> None:
    page = opened(visit)
    visit.ask("slow: tell me a story")
    page.locator("#thread .bot-row .md", has_text="Once there was").wait_for()
    page.wait_for_timeout(1500)
    page.click("#stop")
    page.wait_for_selector("#retry")
    assert len(newest(visit).turns) == 1


@pytest.mark.usefixtures("slow_models")
def test_a_question_is_not_lost_where_the_chat_before_it_is_read_slowly(visit: Visit) -> None:
    page = opened(visit)
    visit.ask("Hello!")
    page.wait_for_selector("#retry")
    visit.site.arena.chat_delays_s = [1.5]
    page.reload()
    visit.wait_until(lambda: not visit.site.arena.chat_delays_s)
    visit.write("#prompt textarea", "slow: tell me a story")
    page.press("#prompt textarea", "Enter")
    page.wait_for_selector("#stop")
    page.wait_for_timeout(2000)
    assert page.locator("#stop").is_visible()
    assert page.locator("#thread .user-row").count() == 2
    page.click("#stop")
    page.wait_for_selector("#retry")
    assert len(newest(visit).turns) == 2


def test_a_failed_answer_stays_in_place_and_is_tried_again(visit: Visit) -> None:
    page = opened(visit)
    visit.ask("fail: hello")
    page.locator("#notice", has_text=texts.CHAT_TURN_FAILED).wait_for()
    assert page.locator("#thread .user-row").count() == 1
    visit.site.arena.fails = False
    try:
        page.click("#retry")
        page.locator("#thread .bot-row .md", has_text="What can I do").wait_for()
    finally:
        visit.site.arena.fails = True
    page.wait_for_selector("#retry")
    assert page.locator("#notice .agon-notice").count() == 0


def test_the_last_question_is_edited_and_a_new_chat_deletes_the_old_one(visit: Visit) -> None:
    page = opened(visit)
    visit.ask("Hello!")
    page.wait_for_selector("#edit")
    page.click("#edit")
    page.locator("#thread .user-row").wait_for(state="detached")
    assert page.input_value("#prompt textarea") == "Hello!"
    visit.ask("What is the capital of France?")
    page.locator("#thread .bot-row .md", has_text="Paris").wait_for()
    page.wait_for_selector("#new")
    chat = newest(visit)
    assert [turn.content for turn in chat.turns] == ["What is the capital of France?"]
    page.click("#new")
    page.get_by_role("heading", name=texts.DIRECT_TITLE).wait_for()
    assert chat.id not in visit.site.arena.chats
    assert re.fullmatch(r"\s*", page.inner_text("#thread"))


@pytest.mark.usefixtures("slow_models")
def test_stop_keeps_what_was_written(visit: Visit) -> None:
    page = opened(visit)
    visit.ask("slow: tell me a story")
    page.locator("#thread .bot-row .md", has_text="Once").wait_for()
    page.click("#stop")
    page.wait_for_selector("#retry")
    assert newest(visit).turns[0].answer.finish_reason == "abort"
    assert 0 < len(visit.answers()[0]) < len(STORY)
