"""Every page in every state, one after another: for the check with axe-core and for screenshots."""

from collections.abc import Iterator

import httpx
from playwright.sync_api import Page

from tests.webui.conftest import Site
from tests.webui.fake_admin import ADMIN_TOKEN
from tests.webui.fake_answers import MODELS
from webui import sentences, texts
from wire.ids import NoticeId
from wire.notices import Notice

LONG_S = 60.0  #: a vote waits until its page goes on


def ask(page: Page, text: str) -> None:
    """Type a question and send it."""
    page.fill("#prompt textarea", text)
    page.press("#prompt textarea", "Enter")


def walk(page: Page, site: Site) -> Iterator[str]:
    """Bring the page into each state and yield the state's name. The arena behind it has all that a board can hold."""
    url = site.url
    yield from _notices(page, site)
    yield from _battle(page, site)
    yield from _history(page, url)
    yield from _side_by_side(page, url)
    yield from _chat(page, site)
    page.goto(f"{url}/leaderboard")
    page.wait_for_selector(".agon-ranking")
    page.wait_for_selector(".agon-history")
    yield "leaderboard"
    page.locator("#why-unrated summary").click()
    page.locator(".agon-method > button").click()
    page.wait_for_selector("#weighting input")
    yield "leaderboard-unfolded"
    page.goto(f"{url}/workers")
    page.wait_for_selector(".agon-worker")
    yield "workers"
    page.get_by_text(texts.OPERATOR).click()
    box = page.locator("#token input")
    while box.input_value() != ADMIN_TOKEN:  # Gradio empties a box once, a moment after it has opened
        box.fill(ADMIN_TOKEN)
        page.wait_for_timeout(200)
    box.press("Enter")
    page.wait_for_selector(".agon-pool")
    yield "workers-admin"
    page.goto(f"{url}{texts.ABOUT_PATH}")
    page.wait_for_selector(".agon-about")
    yield "about"
    yield from _admin(page, url)


def _admin(page: Page, url: str) -> Iterator[str]:
    page.goto(f"{url}/admin")
    page.wait_for_selector("#sign-in:not([hidden])")
    yield "admin-sign-in"
    page.fill("#token", ADMIN_TOKEN)
    page.press("#token", "Enter")
    page.wait_for_selector("#models")
    yield "admin"


def _notices(page: Page, site: Site) -> Iterator[str]:
    """What the operator tells every visitor, and asks once."""
    admin = site.arena.admin
    try:
        admin.notices.append(Notice(id=NoticeId("n-walk"), text="Updated tonight.", severity="warning", starts=0))
        admin.terms_text = "Be kind.\n\nWrite nothing that must stay private."
        _wait_until_told(page, site, is_any=True)
        page.goto(site.url)
        page.get_by_role("dialog", name=texts.TERMS_TITLE).wait_for()
        yield "battle-terms"
        page.get_by_role("button", name=texts.NOTICE_WORDS["accept"]).click()
        page.locator("#agon-terms").wait_for(state="detached")
        page.wait_for_selector("#send")
        yield "battle-notice"
        page.goto(f"{site.url}/terms")
        page.get_by_role("heading", name=texts.TERMS_TITLE).wait_for()
        yield "terms"
        page.goto(f"{site.url}/nothing-there")
        page.get_by_text(texts.NOT_FOUND).wait_for()
        yield "not-found"
    finally:
        admin.notices.clear()
        admin.terms_text = ""
    _wait_until_told(page, site, is_any=False)


def _wait_until_told(page: Page, site: Site, *, is_any: bool) -> None:
    """Wait until the web UI tells visitors what is in force: it asks the controller now and then."""
    while True:
        told = httpx.get(f"{site.url}/notices", trust_env=False).json()
        if bool(told["notices"]) == bool(told["terms"]) == is_any:
            return
        page.wait_for_timeout(50)


def _battle(page: Page, site: Site) -> Iterator[str]:
    page.goto(site.url)
    page.wait_for_selector("#send")
    yield "battle-empty"
    page.click(".agon-language summary")
    page.wait_for_selector(".agon-language[open]")
    yield "battle-languages"
    page.keyboard.press("Escape")
    try:
        site.arena.refuse_creation = 1000
        ask(page, "Hello!")
        page.locator("#notice .agon-notice").wait_for()
        yield "battle-waiting"
    finally:
        site.arena.refuse_creation = 0
    page.wait_for_selector("#vote-left")
    page.click("#new")
    page.locator("#thread .user-row").first.wait_for(state="detached")
    ask(page, "slow: tell me a story")
    page.locator("#thread .bot-row .md", has_text="Once").wait_for()
    yield "battle-streaming"
    page.wait_for_selector("#vote-left")
    ask(page, "compare")
    page.locator("#thread .bot-row table").first.wait_for()
    page.wait_for_selector("#vote-left")
    page.locator("#thread pre[tabindex]").first.wait_for()
    yield "battle-answered"
    page.context.set_offline(True)
    page.locator("#agon-away", has_text=texts.RECONNECTING).wait_for()
    yield "battle-away"
    page.context.set_offline(False)
    page.locator("#agon-away:empty").wait_for(state="attached")
    pending = site.app.state.pending_votes
    usual_s, pending.undo_s = pending.undo_s, LONG_S
    try:
        page.click("#vote-left")
        page.wait_for_selector("#undo")
        yield "battle-undo"
    finally:
        pending.undo_s = usual_s
    page.click("#undo")
    page.click("#vote-up")
    page.wait_for_selector(".agon-feedback[data-live]")
    yield "battle-voted"
    page.evaluate("document.querySelector('.agon-feedback details').open = true")
    page.get_by_label(sentences.reason("style", "tie")).check()
    page.get_by_role("button", name=sentences.thumb("b", "down")).click()
    page.fill(".agon-comment textarea", "B is wrong about the second step.")
    page.locator(".agon-feedback-state", has_text=texts.FEEDBACK_STATES["saved"]).wait_for()
    yield "battle-feedback"
    page.click("#new")
    page.locator("#thread .user-row").first.wait_for(state="detached")
    ask(page, "fail b please")
    page.locator("#notice .agon-notice").wait_for()
    yield "battle-failed"


def _history(page: Page, url: str) -> Iterator[str]:
    """Of the voted battle, which is the last but one."""
    page.goto(f"{url}{texts.HISTORY_PATH}")
    yield "history"
    page.locator(".battles a").nth(1).click()
    page.wait_for_selector(".agon-feedback[data-live]")
    yield "history-battle"
    page.click("#share")
    link = page.wait_for_selector("#link")
    assert link is not None
    yield "history-shared"
    page.goto(f"{url}{link.get_attribute('href')}")
    page.wait_for_selector(".sides")
    yield "shared"
    page.goto(f"{url}{texts.SHARED_PATH}/nothing-there")
    page.get_by_text(texts.NOT_SHARED).wait_for()
    yield "shared-gone"


def _side_by_side(page: Page, url: str) -> Iterator[str]:
    page.goto(f"{url}/side-by-side")
    page.wait_for_function(f"document.querySelector('#model-b input')?.value === '{MODELS[1]}'")
    yield from _parameters(page, "side-by-side")
    page.click("#model-a input")
    page.locator("[role=option]").first.wait_for()
    yield "side-by-side-choosing"
    page.keyboard.press("Escape")
    ask(page, "Think, then say hello!")
    page.wait_for_selector("#vote-left")
    yield "side-by-side-answered"
    page.locator("#thread .agon-thoughts summary").click()
    page.wait_for_selector("#thread .agon-thoughts[open]")
    yield "side-by-side-thoughts"
    page.click("#vote-left")
    page.locator(".agon-plate-facts").nth(1).wait_for()
    yield "side-by-side-voted"


def _chat(page: Page, site: Site) -> Iterator[str]:
    page.goto(f"{site.url}/chat")
    page.wait_for_function(f"document.querySelector('#model input')?.value === '{MODELS[0]}'")
    yield from _parameters(page, "chat")
    ask(page, "Think: what is 12 + 30?")
    page.wait_for_selector("#retry")
    yield "chat-answered"
    page.locator("#thread .agon-thoughts summary").click()
    page.wait_for_selector("#thread .agon-thoughts[open]")
    yield "chat-thoughts"
    ask(page, "fail: hello")
    page.locator("#notice", has_text=texts.CHAT_TURN_FAILED).wait_for()
    yield "chat-failed"


def _parameters(page: Page, name: str) -> Iterator[str]:
    yield f"{name}-empty"
    page.get_by_text(texts.PARAMETERS).click()
    page.get_by_label(texts.OWN_PARAMETERS).uncheck()
    page.locator(".agon-sliders input[type=range]").first.wait_for()
    yield f"{name}-parameters"
