"""What models think, on the pages: folded above the answer, open while it streams, and not before the names."""

import json
from collections.abc import Iterator

import pytest

from tests.webui.conftest import Site, Visit
from tests.webui.fake_answers import CODE, MODELS, THOUGHTS
from webui import texts

QUESTION = "Think: what is 12 + 30?"


def open_side_by_side(visit: Visit) -> None:
    visit.open("/side-by-side")
    visit.page.wait_for_function(f"document.querySelector('#model-b input')?.value === '{MODELS[1]}'")


@pytest.fixture
def thinking_on(site: Site) -> Iterator[None]:
    """Models think until the test lets them answer."""
    site.arena.holds_answers = True
    yield
    site.arena.holds_answers = False


@pytest.mark.usefixtures("thinking_on")
def test_thoughts_stream_folded_above_the_answer_and_stay_open_while_it_is_written(visit: Visit) -> None:
    open_side_by_side(visit)
    page = visit.page
    visit.ask(QUESTION)
    block = page.locator("#thread .bot-row .agon-thoughts")
    block.get_by_text(texts.THINKING, exact=True).wait_for()
    page.wait_for_function("text => document.querySelector('.agon-thoughts > div').textContent === text", arg=THOUGHTS)
    assert not block.evaluate("block => block.open")
    block.locator("summary").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#thread .agon-thoughts[open]")

    visit.site.arena.holds_answers = False
    page.wait_for_selector("#vote-left")  # the block was written anew with every piece of the answer
    assert block.locator("summary").inner_text() == texts.THOUGHTS
    assert block.evaluate("block => block.open")
    assert block.evaluate("block => document.activeElement === block.firstElementChild")
    page.keyboard.press("Enter")
    page.wait_for_selector("#thread .agon-thoughts:not([open])")
    assert page.locator("#thread .bot-row code", has_text="def add").count() == 1


def test_no_thoughts_of_hidden_models_reach_the_browser_before_the_vote(
    visit: Visit,
) -> None:
    page = visit.open("/")
    visit.ask_and_wait(QUESTION)
    assert page.locator(".agon-thoughts").count() == 0
    page.reload()
    page.wait_for_selector("#vote-left")
    assert page.locator(".agon-thoughts").count() == 0
    assert not [body for body in visit.bodies if "so tens first" in body]

    page.click("#vote-left")
    page.wait_for_selector(".agon-reveal")
    page.locator("#thread .agon-thoughts", has_text="so tens first").wait_for(state="attached")
    assert page.locator(".agon-thoughts").count() == 1
    page.reload()
    page.locator("#thread .agon-thoughts", has_text="so tens first").wait_for(state="attached")


def test_direct_chat_folds_thoughts_above_the_answer_and_keeps_them(visit: Visit) -> None:
    page = visit.open("/chat")
    page.wait_for_function("document.querySelector('#model input')?.value")
    visit.ask(QUESTION)
    page.locator("#thread .bot-row code", has_text="def add").wait_for()
    page.wait_for_selector("#retry")
    page.reload()
    block = page.locator("#thread .bot-row .agon-thoughts")
    block.locator("summary").click()
    assert block.locator("> div").evaluate("shown => shown.textContent") == THOUGHTS
    assert page.locator("#thread .bot-row code", has_text="def add").count() == 1


def test_a_copied_answer_has_no_thoughts(visit: Visit) -> None:
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_side_by_side(visit)
    page = visit.page
    visit.ask_and_wait(QUESTION)
    page.locator("#thread .bot-row").first.get_by_role("button", name=texts.COPY, exact=True).last.click()
    visit.wait_until(lambda: page.evaluate("navigator.clipboard.readText()").startswith("Here is a way"))
    assert page.evaluate("navigator.clipboard.readText()").strip() == CODE


def test_shared_and_saved_conversations_have_thoughts_apart(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait(QUESTION)
    page.click("#vote-left")
    page.wait_for_selector(".agon-reveal")
    page.goto(f"{visit.site.url}{texts.HISTORY_PATH}")
    page.locator(".battles a").first.click()
    page.wait_for_selector("article")
    block = page.locator(".agon-thoughts")
    assert not block.evaluate("block => block.open")
    block.locator("summary").click()
    assert block.locator("> div").inner_text() == THOUGHTS
    saved = page.request.get(f"{page.url}.json")
    [turn] = json.loads(saved.text())["turns"]
    assert (turn["thoughts"], turn["a"]) == ({"a": THOUGHTS}, CODE)
