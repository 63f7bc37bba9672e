"""Fixtures of the page tests: a fake controller over real HTTP, and for browser tests a real Chromium.

A missing browser fails the tests instead of skipping them, because the pages are the product.
"""

import json
import os
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright
from pydantic import SecretStr

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

from gradio.routes import App
from starlette.routing import Mount

from tests.browser import find_browser
from tests.webui.fake_controller import FakeArena, create_fake
from tests.webui.server_thread import ServerThread
from webui.page_sessions import PageSessions

_BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
#: A busy machine shows a page late; a broken page never does.
PATIENCE_MS = 45_000
MAX_EVENTS = 123
UNDO_S = 0.3
MAX_AGE_S = 0.2  #: of what the web UI asks the controller for all visitors
PROXY_TOKEN = "proxy-token-for-tests"


@pytest.fixture
def arena() -> FakeArena:
    return FakeArena(delta_s=0.002)


@pytest.fixture
def controller(arena: FakeArena) -> Generator[str, None, None]:
    """The address of a fake controller for this test alone."""
    with ServerThread(lambda: create_fake(arena)) as url:
        yield url


@dataclass(frozen=True)
class Site:
    """The web UI and the fake arena behind it, shared by all browser tests."""

    url: str
    arena: FakeArena
    app: Any


@pytest.fixture(scope="session")
def site() -> Generator[Site, None, None]:
    from webui.app import create_app
    from webui.config import Settings

    arena = FakeArena(delta_s=0.004)
    apps: list[Any] = []

    def make_app(controller_url: str) -> Any:
        settings = Settings(
            controller_url=controller_url,
            webui_board_max_age_s=MAX_AGE_S,
            webui_undo_s=UNDO_S,
            webui_max_events=MAX_EVENTS,
            proxy_token=SecretStr(PROXY_TOKEN),
        )
        apps.append(create_app(settings))
        return apps[0]

    with (
        ServerThread(lambda: create_fake(arena)) as controller_url,
        ServerThread(lambda: make_app(controller_url)) as url,
    ):
        yield Site(url, arena, apps[0])


@pytest.fixture
def sessions(site: Site) -> Generator[PageSessions, None, None]:
    """The sessions of the shared site, whose bounds a test may change."""
    app = next(route.app for route in site.app.routes if isinstance(route, Mount) and isinstance(route.app, App))
    found = app.state_holder
    assert isinstance(found, PageSessions)
    capacity = found.capacity
    yield found
    found.capacity = capacity


@pytest.fixture(scope="session")
def browser() -> Generator[Browser, None, None]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_browser(), args=list(_BROWSER_FLAGS))
        yield chromium
        chromium.close()


class Profiles:
    """Browser contexts by their options. A context is used by one test after the other, and knows nothing of the one
    before but the files of the pages: they are loaded and compiled once."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url
        self._contexts: dict[str, BrowserContext] = {}

    def context(self, options: dict[str, Any]) -> BrowserContext:
        """An empty context with these options."""
        key = json.dumps(options, sort_keys=True)
        if key in self._contexts:
            return self._contexts[key]
        context = self._contexts[key] = self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        return context

    def clear(self, context: BrowserContext) -> None:
        """Close the pages of a context, and make it forget what they have stored."""
        bare = context.new_page()
        for page in context.pages[:-1]:
            page.close()
        context.unroute_all()
        context.set_offline(False)
        # Cleared from outside (Storage.clearDataForOrigin), local storage sometimes came back with the next page of
        # the same process; so a page without scripts clears it from inside.
        bare.goto(f"{self._url}/health")
        bare.evaluate("localStorage.clear(), sessionStorage.clear()")
        bare.close()
        context.clear_cookies()
        context.clear_permissions()


@pytest.fixture(scope="session")
def profiles(site: Site, browser: Browser) -> Profiles:
    return Profiles(browser, site.url)


_NOTE_STREAMS = """
const read = ReadableStreamDefaultReader.prototype.read;
ReadableStreamDefaultReader.prototype.read = async function () {
  const part = await read.apply(this, arguments);
  if (part.value) window.agonNote(typeof part.value === "string" ? part.value : new TextDecoder().decode(part.value));
  return part;
};
"""


@pytest.fixture
def slow_models(site: Site) -> Generator[None, None, None]:
    """Answers to prompts with "slow" in them take half a minute, so that a test can act meanwhile."""
    usual_s, site.arena.delta_s = site.arena.delta_s, 0.06
    yield
    site.arena.delta_s = usual_s


@dataclass
class Visit:
    """One visitor: a page in an empty browser context, and everything that it received over the network."""

    site: Site
    page: Page
    bodies: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, path: str = "/") -> Page:
        self.page.goto(self.site.url + path)
        self.page.wait_for_selector("#send, #board")
        if self.page.locator("#send").count():  # the code of each kind of component is loaded by itself
            self.page.wait_for_selector("#prompt textarea")
        return self.page

    def write(self, box: str, text: str) -> None:
        """Fill a box that has just appeared: what is written while it is still being set up is lost."""

        def is_written() -> bool:
            self.page.fill(box, text)
            self.page.wait_for_timeout(200)
            return self.page.input_value(box) == text

        self.wait_until(is_written)

    def ask(self, text: str) -> None:
        self.page.fill("#prompt textarea", text)
        self.page.press("#prompt textarea", "Enter")

    def ask_and_wait(self, text: str) -> None:
        before = self.page.locator(".user-row").count()
        self.ask(text)
        self.page.locator(".user-row").nth(before).wait_for()
        self.page.wait_for_selector("#vote-left")

    def answers(self) -> list[str]:
        return self.page.locator("#thread .bot-row .md").all_inner_texts()

    def vote_with(self, key: str) -> None:
        self.page.wait_for_selector("#vote-left[aria-keyshortcuts]")  # now the page counts the grace time
        self.page.wait_for_timeout(600)  # VOTE_GRACE_MS of agon.js, and some
        self.page.keyboard.press(f"Shift+{key}")
        self.page.wait_for_selector(".agon-reveal")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Poll the condition while the browser runs."""
        give_up_at = time.monotonic() + PATIENCE_MS / 1000
        while not condition():
            assert time.monotonic() < give_up_at
            self.page.wait_for_timeout(50)


@pytest.fixture
def visit(site: Site, profiles: Profiles, request: pytest.FixtureRequest) -> Generator[Visit, None, None]:
    """A visitor; parametrize indirectly with the arguments of a browser context for a phone or the dark theme."""
    options: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}, **getattr(request, "param", {})}
    context = profiles.context(options)
    page = context.new_page()
    visitor = Visit(site, page)

    # Gradio reads its event stream piece by piece, so the browser keeps no body: what its readers return is recorded
    # instead.
    page.expose_function("agonNote", lambda text: visitor.bodies.append(text))
    page.add_init_script(_NOTE_STREAMS)

    def note_body(finished: Any) -> None:
        if "/assets/" in finished.url or "/static/" in finished.url or "queue/data" in finished.url:
            return
        response = finished.response()
        if response is not None and response.status == 200:
            with suppress(Error):  # the browser keeps no body of a page that the test has left meanwhile
                visitor.bodies.append(response.text())

    page.on("request", lambda request: visitor.urls.append(request.url))
    page.on("requestfinished", note_body)
    page.on("pageerror", lambda error: visitor.errors.append(str(error)))
    yield visitor
    profiles.clear(context)
