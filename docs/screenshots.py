"""Take the pictures in docs/images: every page of a running arena at 1280 px in light and at 390 px in dark.

    python docs/screenshots.py --url http://127.0.0.1:7860

Without --url the pages are shown against the fake controller of the tests, which needs no model. It casts one vote.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
QUESTIONS = ("Tell me a short story about a fox and a lantern.", "What is 12 + 30?")
PATIENCE_MS = 120_000


@dataclass(frozen=True)
class Look:
    """One way of looking at the pages."""

    name: str
    width: int
    height: int
    theme: str
    is_phone: bool = False


LOOKS = (
    Look("wide", 1280, 800, "light"),
    Look("phone", 390, 844, "dark", is_phone=True),
)
MORE_LOOKS = (
    Look("wide-dark", 1280, 800, "dark"),
    Look("phone-light", 390, 844, "light", is_phone=True),
)


@contextmanager
def fake_arena() -> Iterator[str]:
    """The web UI in front of the tests' fake controller, with a few votes cast."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests/webui")]
    from fake_controller import FakeArena, create_fake, some_votes
    from server_thread import ServerThread

    from webui.app import create_app
    from webui.config import Settings

    arena = FakeArena(delta_s=0.03)
    arena.votes.extend(some_votes())
    with (
        ServerThread(lambda: create_fake(arena)) as controller,
        ServerThread(lambda: create_app(Settings(controller_url=controller))) as url,
    ):
        yield url


def battle(page: Page, url: str, save: "Save") -> None:
    page.goto(url)
    page.wait_for_selector("#send")
    page.wait_for_timeout(600)
    save(page, "battle-empty")
    for number, question in enumerate(QUESTIONS):
        page.fill("#prompt textarea", question)
        page.press("#prompt textarea", "Enter")
        page.locator("#thread .user-row").nth(number).wait_for()
        page.locator("#thread .bot-row").nth(2 * number).locator(".md:not(:empty)").wait_for()
        page.wait_for_timeout(900)
        if number == 0:
            save(page, "battle-streaming")
        page.wait_for_selector("#vote-left")
    page.wait_for_timeout(900)
    save(page, "battle-vote")
    page.click("#vote-left")
    page.wait_for_selector(".agon-standing > span")
    page.wait_for_timeout(800)
    save(page, "battle-reveal")


def other_pages(page: Page, url: str, save: "Save") -> None:
    for name, ready in (
        ("side-by-side", "#send"),
        ("chat", "#send"),
        ("leaderboard", ".agon-ranking"),
        ("workers", ".agon-worker"),
    ):
        page.goto(f"{url}/{name}")
        page.wait_for_selector(ready)
        page.wait_for_timeout(1500)
        save(page, name, full_page=name in ("leaderboard", "workers"))


class Save:
    def __init__(self, look: Look) -> None:
        self._look = look

    def __call__(self, page: Page, name: str, *, full_page: bool = False) -> None:
        page.screenshot(path=IMAGES / f"{name}-{self._look.name}.png", full_page=full_page)


def take(browser: Browser, url: str, look: Look) -> None:
    context = browser.new_context(
        viewport={"width": look.width, "height": look.height},
        color_scheme="dark" if look.theme == "dark" else "light",
        has_touch=look.is_phone,
        is_mobile=look.is_phone,
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    battle(page, url, Save(look))
    other_pages(page, url, Save(look))
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a running web UI")
    parser.add_argument("--all", action="store_true", help="both themes at both sizes")
    given = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = given.url or stack.enter_context(fake_arena())
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for look in LOOKS + (MORE_LOOKS if given.all else ()):
            take(browser, url.rstrip("/"), look)
        browser.close()


if __name__ == "__main__":
    main()
