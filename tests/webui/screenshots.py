"""Takes a picture of every page in every state, at four widths, in both themes and at 200 %, into a folder.

    python -m tests.webui.screenshots pictures [--only battle] [--language de]

For people who look at them one by one after a change of the layout; they are not compared by a machine.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from pydantic import SecretStr

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

from tests.browser import find_browser
from tests.webui.conftest import Site
from tests.webui.fake_controller import FakeArena, create_fake
from tests.webui.server_thread import ServerThread
from tests.webui.states import walk
from webui.app import create_app
from webui.config import Settings
from webui.languages import DEFAULT, LANGUAGES, speaking

WINDOWS: dict[str, dict[str, Any]] = {
    "390": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "768": {"viewport": {"width": 768, "height": 1024}},
    "1280": {"viewport": {"width": 1280, "height": 800}},
    "1920": {"viewport": {"width": 1920, "height": 1080}},
    "200-percent": {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2},
}


def take(folder: Path, site: Site, only: str, language: str) -> int:
    """Walk through all states for each window and theme; returns the number of pictures."""
    taken = 0
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        for window, options in WINDOWS.items():
            for theme in ("light", "dark"):
                context = chromium.new_context(color_scheme=theme, reduced_motion="reduce", locale=language, **options)
                page = context.new_page()
                with speaking(language):
                    for state in walk(page, site):
                        if only in state:
                            page.screenshot(path=folder / f"{state}.{window}.{theme}.png")
                            taken += 1
                context.close()
        chromium.close()
    return taken


def main() -> None:
    """Serve the pages in front of the fake controller and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="take only states with this in their name")
    parser.add_argument("--language", default=DEFAULT, choices=LANGUAGES, help="of the pages")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    arena = FakeArena(delta_s=0.004)
    arena.has_full_board = True
    with ServerThread(lambda: create_fake(arena)) as controller:
        settings = Settings(controller_url=controller, proxy_token=SecretStr("token-of-the-screenshots"))
        apps: list[Any] = []

        def make_app() -> Any:
            apps.append(create_app(settings))
            return apps[0]

        with ServerThread(make_app) as url:
            site = Site(url, arena, apps[0])
            print(f"{take(options.folder, site, options.only, options.language)} pictures in {options.folder}")


if __name__ == "__main__":
    main()
