"""The browser of the tests."""

import os
import shutil

#: The first that is installed is used. The shell, which has no windows, is a quarter faster.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str:
    """The path of a Chromium, which AGON_CHROMIUM may name. Fails the test if there is none: the pages are the
    product."""
    chosen = os.environ.get("AGON_CHROMIUM")
    path = next((found for name in ((chosen,) if chosen else _NAMES) if (found := shutil.which(name))), None)
    assert path is not None, "no Chromium on this machine: apt-get install chromium"
    return path
