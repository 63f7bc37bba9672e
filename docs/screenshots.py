"""Take the pictures in docs/images: every page of a running arena at 1280 px in light and at 390 px in dark, the
leaderboard whole.

    python docs/screenshots.py [--url http://127.0.0.1:7860]

Without --url it starts `agon up` with the demo models in a temporary data directory, and imports simulated votes
(simulated_votes.py), so that the leaderboard has something of everything. It casts one vote for each size.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
QUESTIONS = ("What is 12 + 30?", "Tell me a short story about a fox and a lantern.")
PATIENCE_MS = 120_000
NUM_WORKERS = 3


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
def demo_arena() -> Iterator[tuple[str, str]]:
    """`agon up` with the demo models and simulated votes, until the block is left; yields the web UI's URL and
    the admin token."""
    sys.path.insert(0, str(ROOT))
    from tests.e2e.arena import arena

    with tempfile.TemporaryDirectory() as folder, arena(Path(folder) / "data", [], NUM_WORKERS) as up:
        up.wait_ready()
        admin_token = json.loads((up.data_dir / "secrets.json").read_text())["admin_token"]
        import_votes(up.controller_url, admin_token)
        yield up.webui_url, admin_token


def import_votes(controller_url: str, admin_token: str) -> None:
    """Import the votes of simulated_votes.py, and write its model cards."""
    from docs.simulated_votes import CARDS, simulated_votes

    headers = {"Authorization": f"Bearer {admin_token}"}
    with httpx.Client(base_url=controller_url, headers=headers, timeout=60, trust_env=False) as client:
        workers = client.get("/arena/workers").raise_for_status().json()
        revisions = {worker["model"]: worker["card"]["revision"] for worker in workers}
        votes = simulated_votes(time.time(), revisions)
        lines = "\n".join(vote.model_dump_json(exclude_none=True) for vote in votes)
        as_lines = {"Content-Type": "application/x-ndjson"}
        client.post("/arena/votes/import", content=lines, headers=as_lines).raise_for_status()
        for card in CARDS:
            client.put(f"/arena/models/{card.model}/card", json=card.model_dump(mode="json")).raise_for_status()


def battle(page: Page, url: str, save: "Save") -> None:
    """Play one battle of two turns, vote for A, and take a picture of each phase."""
    page.goto(url)
    page.wait_for_selector("#send")
    page.wait_for_timeout(600)
    save(page, "battle-empty")
    for number, question in enumerate(QUESTIONS):
        page.fill("#prompt textarea", question)
        page.press("#prompt textarea", "Enter")
        page.locator("#thread .user-row").nth(number).wait_for()
        page.locator("#thread .bot-row").nth(2 * number).locator(".md:not(:empty)").wait_for()
        if number == len(QUESTIONS) - 1:
            save(page, "battle-streaming")  # at once: the demo models answer within a second
        page.wait_for_selector("#vote-left")
    page.wait_for_timeout(900)
    save(page, "battle-vote")
    page.click("#vote-left")
    page.wait_for_selector(".agon-standing > span")
    page.wait_for_timeout(800)
    save(page, "battle-reveal")


def other_pages(page: Page, url: str, admin_token: str, save: "Save") -> None:
    """Take a picture of every page but the battle; that of the workers as the operator sees it."""
    for name, ready in (
        ("side-by-side", "#send"),
        ("chat", "#send"),
        ("workers", ".agon-worker"),
    ):
        page.goto(f"{url}/{name}")
        page.wait_for_selector(ready)
        if name == "workers" and admin_token:
            page.locator(".agon-fold button").first.click()
            page.fill("#token input", admin_token)
            page.press("#token input", "Enter")
            page.wait_for_selector(".agon-pool")
        page.wait_for_timeout(1500)
        save(page, name, full_page=name == "workers")


def leaderboard(page: Page, url: str, look: "Look") -> None:
    """Take leaderboard-WIDTH.png: the whole page of the leaderboard in light, with its reasons unfolded."""
    page.goto(f"{url}/leaderboard")
    page.wait_for_selector(".agon-ranking")
    reasons = page.locator("#why-unrated summary")
    if reasons.count():
        reasons.click()
    page.wait_for_timeout(2500)
    path = IMAGES / f"leaderboard-{look.width}.png"
    page.screenshot(path=path, full_page=True)
    whole = Image.open(path).convert("RGB")  # 256 colours take a third of the room
    few = whole.quantize(256, Image.Quantize.FASTOCTREE, kmeans=8, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


class Save:
    """Writes a picture of a page into IMAGES, named after the page and the look."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def __call__(self, page: Page, name: str, *, full_page: bool = False) -> None:
        page.screenshot(path=IMAGES / f"{name}-{self._look.name}.png", full_page=full_page)


def take(browser: Browser, url: str, admin_token: str, look: Look) -> None:
    """Take all pictures of one look, in a browser context of its own."""
    context = browser.new_context(
        viewport={"width": look.width, "height": look.height},
        color_scheme="dark" if look.theme == "dark" else "light",
        has_touch=look.is_phone,
        is_mobile=look.is_phone,
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    battle(page, url, Save(look))
    other_pages(page, url, admin_token, Save(look))
    page.emulate_media(color_scheme="light")
    leaderboard(page, url, look)
    context.close()


def main() -> None:
    """Take the pictures; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a running web UI")
    parser.add_argument("--admin-token", default="", help="of the arena behind it, for the page of the workers")
    parser.add_argument("--all", action="store_true", help="both themes at both sizes")
    given = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url, admin_token = (given.url, given.admin_token) if given.url else stack.enter_context(demo_arena())
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for look in LOOKS + (MORE_LOOKS if given.all else ()):
            take(browser, url.rstrip("/"), admin_token, look)
        browser.close()


if __name__ == "__main__":
    main()
