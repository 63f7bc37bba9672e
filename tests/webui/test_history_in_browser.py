"""The pages of a visitor's own battles and of shared ones, over HTTP and in a browser."""

import json

import httpx
import pytest

from tests.webui.conftest import Visit
from webui import texts
from webui.history.conversation import Conversation
from wire.battles import Answer, Turn

HOSTILE = (
    "<img src=x onerror=alert(1)> ![x](https://example.com/x.png) [y](javascript:alert(2)) <script>alert(3)</script>"
)


def test_a_voted_battle_is_listed_shared_read_by_others_and_taken_back(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("What is 12 + 30?")
    page.goto(visit.site.url + texts.HISTORY_PATH)
    page.locator(".battles li").first.locator("a").click()
    page.wait_for_selector(".sides .side")
    assert page.locator("#share").count() == 0  # before the vote: no link, and no name
    battle = list(visit.site.arena.battles.values())[-1]
    assert not any(model in page.content() for model in battle.models)

    page.goto(visit.site.url)
    page.wait_for_selector("#vote-left")
    visit.vote_with("ArrowRight")
    battle_page = page.locator("a", has_text=texts.KEEP_BATTLE).get_attribute("href")
    page.goto(visit.site.url + str(battle_page))
    assert page.locator("h1").inner_text() == " \u00b7 ".join(battle.models)
    page.click("#share")
    link = page.locator("#link").get_attribute("href")
    assert link is not None
    other = httpx.get(visit.site.url + link)
    assert other.status_code == 200
    assert all(model in other.text for model in battle.models)
    assert battle.id not in other.text

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("[data-copy=link]")
    page.locator("#said", has_text=texts.COPIED).wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == visit.site.url + link

    page.click("#unshare")
    page.wait_for_selector("#share")
    gone = httpx.get(visit.site.url + link)
    assert (gone.status_code, texts.NOT_SHARED in gone.text) == (404, True)
    page.click("#forget")
    page.wait_for_url(f"**{texts.HISTORY_PATH}")
    assert page.locator(f'a[href="{battle_page}"]').count() == 0
    assert visit.errors == []


@pytest.mark.parametrize("visit", [{"viewport": {"width": 390, "height": 844}}], indirect=True)
def test_a_conversation_fits_a_phone_and_is_copied(visit: Visit) -> None:
    page = visit.open("/")
    visit.ask_and_wait("raw " + "wide " * 10 + "| a | b |\n|---|---|\n| " + "x" * 200 + " | 2 |")
    battle = list(visit.site.arena.battles.values())[-1]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{visit.site.url}{texts.HISTORY_PATH}/{battle.id}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("[data-copy=text]")
    page.locator("#said", has_text=texts.COPIED).wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#text").text_content()


def test_files_of_a_conversation_hold_what_was_written() -> None:
    turns = (Turn(number=1, content=HOSTILE, a=Answer(text="# one"), b=Answer(text="two\n\nlines")),)
    hidden = Conversation(turns, {}, None)
    voted = Conversation(turns, {"a": "finch", "b": "raven"}, "a")
    assert json.loads(voted.as_json()) == {
        "models": {"a": "finch", "b": "raven"},
        "outcome": "a",
        "turns": [{"question": HOSTILE, "a": "# one", "b": "two\n\nlines"}],
    }
    assert json.loads(hidden.as_json())["models"] is None
    assert f"\n{HOSTILE}\n" in voted.as_markdown()
    assert "A: finch" in voted.as_markdown()
    assert "finch" not in hidden.as_markdown()


def test_files_of_a_conversation_have_thoughts_apart_and_only_where_a_model_thinks() -> None:
    thinking = Turn(number=1, content="so?", a=Answer(text="yes", thoughts="hm\n\nwell"), b=Answer(text="no"))
    other = Turn(number=2, content="why?", a=Answer(text="so"), b=Answer(text="so"))
    conversation = Conversation((thinking, other), {}, None)
    assert json.loads(conversation.as_json())["turns"] == [
        {"question": "so?", "a": "yes", "b": "no", "thoughts": {"a": "hm\n\nwell"}},
        {"question": "why?", "a": "so", "b": "so"},
    ]
    assert "\n\n> **Thoughts**\n>\n> hm\n>\n> well\n\nyes\n" in conversation.as_markdown()
    assert conversation.as_markdown().count("Thoughts") == 1


def test_nothing_in_a_conversation_is_markup_of_the_page() -> None:
    markup = Conversation(
        (Turn(number=1, content=HOSTILE, a=Answer(text=HOSTILE), b=Answer(text="", thoughts=HOSTILE)),), {}, None
    )
    shown = markup.as_markup()
    assert "<img" not in shown
    assert "<script" not in shown
    assert 'href="javascript' not in shown


@pytest.mark.parametrize("path", ["/history", "/shared/nothing-there"])
def test_the_theme_is_switched_here_and_kept_everywhere(visit: Visit, path: str) -> None:
    page = visit.page
    page.emulate_media(color_scheme="light")
    page.goto(visit.site.url + path)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name=texts.THEME_TOGGLE).click()
    dark = page.evaluate(paper)
    assert dark != light
    page.reload()
    assert page.evaluate(paper) == dark
    visit.open("/")
    page.wait_for_function("document.body.classList.contains('dark')")


@pytest.mark.parametrize("path", ["/history/nothing-there", "/shared/nothing-there", "/history/x.exe", "/shared/a.md"])
def test_a_page_of_nothing_says_so(visit: Visit, path: str) -> None:
    reply = httpx.get(visit.site.url + path, headers={"Accept": "text/html"})
    assert reply.status_code == 404
    assert "Traceback" not in reply.text
