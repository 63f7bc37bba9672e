"""Questions for which the models have no room: they wait in line, say so, and are asked in their turn."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.webui.conftest import Site, Visit
from webui import sentences, texts
from webui.waiting_line import ASKING, WaitingLine

NO_ROOM = 1000  #: refusals: until a test makes room


@pytest.fixture(autouse=True)
def full(site: Site) -> Iterator[None]:
    """Each test ends with room."""
    yield
    site.arena.refuse_creation = site.arena.refuse_turns = 0


def line_of(visit: Visit) -> WaitingLine:
    line: WaitingLine = visit.site.app.state.waiting_line
    return line


def test_a_first_question_says_how_many_are_before_it_and_is_asked_in_its_turn(visit: Visit) -> None:
    page = visit.open("/")
    visit.site.arena.refuse_creation = NO_ROOM
    with ExitStack() as others:
        for _ in range(ASKING + 1):
            others.enter_context(line_of(visit).place())
        visit.ask("Hello!")
        page.locator("#notice", has_text=sentences.waiting_in_line(5)).wait_for()
        visit.site.arena.refuse_creation = 0
        page.wait_for_timeout(1500)  # room goes to those who have waited longer
        assert page.locator("#notice", has_text=sentences.waiting_in_line(5)).is_visible()
    page.wait_for_selector("#vote-left")
    assert page.locator("#notice .agon-notice").count() == 0


def test_a_further_question_waits_in_line_too(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("Hello!")
    visit.site.arena.refuse_turns = NO_ROOM
    visit.ask("What is 12 + 30?")
    page.locator("#notice", has_text=texts.WAITING_FOR_ROOM).wait_for()
    visit.site.arena.refuse_turns = 0
    page.locator("#thread .bot-row code", has_text="def add").wait_for()
    page.wait_for_selector("#vote-left")
    assert page.locator("#notice .agon-notice").count() == 0
    assert page.locator("#thread .user-row").count() == 2
    assert page.input_value("#prompt textarea") == ""


def test_a_question_in_a_chat_waits_in_line_too(visit: Visit) -> None:
    page = visit.open("/chat")
    page.wait_for_function("document.querySelector('#model input')?.value")
    visit.site.arena.refuse_turns = NO_ROOM
    visit.ask("Hello!")
    page.locator("#notice", has_text=texts.WAITING_FOR_ROOM).wait_for()
    visit.site.arena.refuse_turns = 0
    page.locator("#thread .bot-row .md", has_text="What can I do").wait_for()
    page.wait_for_selector("#retry")
    assert page.locator("#notice .agon-notice").count() == 0
