"""`python -m tests.families FOLDER`: an arena of one tiny model each of Qwen3.5, Gemma 4, gpt-oss, Granite 4 and a GGUF
file, started as by `make up`, and battles among all of them in a browser. Takes minutes; not a part of `make test`.

The models are random, so their answers are noise. Each of them must load, answer, end, be voted on and be named.
Pictures of the pages are left in FOLDER to be looked at. Exits with 1 at the first step that fails.
"""

import argparse
import contextlib
import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser import find_browser
from tests.e2e.arena import UpProcess, arena
from tests.families.folders import ARCHITECTURES, write_models

PATIENCE_MS = 60_000
QUESTION = "What is 12 + 30?"
FOLLOW_UP = "Tell me a short story about a fox and a lantern."
#: Battles of models that the controller draws; after these every model has been named, or something is wrong.
MAX_DRAWN = 20


def main() -> None:
    """Start the arena, play, and take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.families", description=__doc__)
    parser.add_argument("folder", type=Path, help="gets the pictures")
    pictures: Path = parser.parse_args().folder
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        models = write_models(Path(root) / "models")
        flags = ["--no-demos", "--isolate"]  # their pages need not suit one another
        flags += [word for name, path in models.items() for word in ("--model", f"{name}={path}")]
        with (
            arena(Path(root) / "data", flags, len(models), AGON_BATTLE_MAX_TOKENS="128") as up,
            sync_playwright() as playwright,
        ):
            print(f"ready after {up.wait_ready():.0f} s", flush=True)
            up.wait_workers(*models)
            chromium = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
            play_all_pairs(chromium, up, pictures)
            play_drawn(chromium, up, pictures)
            look_at_workers(chromium, up, pictures)
            chromium.close()


@contextlib.contextmanager
def visit(chromium: Browser, url: str, pictures: Path) -> Iterator[Page]:
    """A new visitor's page, since a page goes on with the battle that its visitor has begun."""
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    try:
        yield page
    except BaseException:
        page.screenshot(path=pictures / "failed.png")
        raise
    page.close()


def play_all_pairs(chromium: Browser, up: UpProcess, pictures: Path) -> None:
    """A named battle of two turns for each pair of models."""
    for a, b in itertools.combinations(ARCHITECTURES, 2):
        with visit(chromium, f"{up.webui_url}/side-by-side", pictures) as page:
            choose(page, "#model-a", a)
            choose(page, "#model-b", b)
            for number, question in enumerate((QUESTION, FOLLOW_UP), 1):
                ask(page, question, number)
            page.screenshot(path=pictures / f"named-{a}-{b}.png")
            page.click("#vote-left")
            expect(page.locator("#reveal .agon-plate .agon-name")).to_have_count(2, timeout=PATIENCE_MS)
        print(f"{a} against {b}: two turns, voted", flush=True)


def play_drawn(chromium: Browser, up: UpProcess, pictures: Path) -> None:
    """Anonymous battles until every model has been named by a reveal; then all of them are on the leaderboard."""
    named: set[str] = set()
    for count in range(1, MAX_DRAWN + 1):
        with visit(chromium, up.webui_url, pictures) as page:
            ask(page, QUESTION, 1)
            before = page.content().lower()
            assert not any(name in before for name in ARCHITECTURES), "a model is named before the vote"
            page.click("#vote-left")
            plates = page.locator("#reveal .agon-plate .agon-name")
            expect(plates).to_have_count(2, timeout=PATIENCE_MS)
            named.update(plates.all_inner_texts())
            page.wait_for_timeout(500)
            page.screenshot(path=pictures / f"drawn-{count}.png")
        if named == set(ARCHITECTURES):
            break
    assert named == set(ARCHITECTURES), f"after {MAX_DRAWN} battles only {sorted(named)} were drawn"
    print(f"{count} drawn battles, every model revealed", flush=True)
    with visit(chromium, f"{up.webui_url}/leaderboard", pictures) as page:
        for name in ARCHITECTURES:
            expect(page.locator("#board")).to_contain_text(name, timeout=PATIENCE_MS)
        page.screenshot(path=pictures / "leaderboard.png", full_page=True)


def look_at_workers(chromium: Browser, up: UpProcess, pictures: Path) -> None:
    """The page of the workers has each model."""
    with visit(chromium, f"{up.webui_url}/workers", pictures) as page:
        expect(page.locator(".agon-worker")).to_have_count(len(ARCHITECTURES), timeout=PATIENCE_MS)
        page.wait_for_timeout(1000)
        page.screenshot(path=pictures / "workers.png", full_page=True)


def choose(page: Page, box: str, model: str) -> None:
    """Choose a model in a box of the side-by-side page, once it has its choices."""
    field = page.locator(f"{box} input")
    expect(field).not_to_have_value("", timeout=PATIENCE_MS)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while field.input_value() != model:
        assert time.monotonic() < deadline, f"{box} never took {model}"
        field.click()
        page.get_by_role("option", name=model, exact=True).click()
        page.wait_for_timeout(200)


def ask(page: Page, question: str, number: int) -> None:
    """Ask the question of turn `number`, and wait until both sides have finished, with a text."""
    page.fill("#prompt textarea", question)
    page.click("#send")
    expect(page.locator("#thread .user-row")).to_have_count(number, timeout=PATIENCE_MS)
    expect(page.locator("#heads .agon-finished")).to_have_count(2, timeout=PATIENCE_MS)
    expect(page.locator("#vote-left")).to_be_visible(timeout=PATIENCE_MS)


if __name__ == "__main__":
    main()
