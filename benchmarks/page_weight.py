"""What a page weighs: python -m benchmarks.page_weight [--url URL] [--rounds N] [--json FILE]

Opens the battle page in headless Chromium, first with an empty cache and then again, and counts requests, bytes on the
wire and seconds until a prompt can be sent. Without --url it starts a web UI of its own, without a controller. Prints
one JSON object; medians of the rounds.
"""

import argparse
import contextlib
import json
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from benchmarks.webui_sessions import webui
from cli.bench.record import commit, machine

_PORT = 29180
_QUIET_MS = 1500  #: what comes later belongs to the page's life, not to its arrival


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", help="a running web UI")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    arguments = parser.parse_args()
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("no Chromium on this machine")
    with _site(arguments.url) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        rounds = [_round(browser, url) for _ in range(arguments.rounds + 1)][1:]  # the first one warms the server up
        browser.close()
    result = {"commit": commit(), "machine": machine(), "rounds": len(rounds), **_medians(rounds)}
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")


@contextlib.contextmanager
def _site(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url.rstrip("/")
        return
    with webui(_PORT):
        yield f"http://127.0.0.1:{_PORT}"


def _round(browser: Browser, url: str) -> dict[str, dict[str, float]]:
    """Both visits of one new browser profile."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    sizes: dict[str, float] = {}
    cached: set[str] = set()
    asked: dict[str, str] = {}
    network.on("Network.requestWillBeSent", lambda event: asked.setdefault(event["requestId"], event["request"]["url"]))
    network.on("Network.requestServedFromCache", lambda event: cached.add(event["requestId"]))
    network.on("Network.loadingFinished", lambda event: sizes.update({event["requestId"]: event["encodedDataLength"]}))
    visits = {}
    for name in ("first", "second"):
        for seen in (sizes, cached, asked):
            seen.clear()
        page.goto(f"{url}/")
        page.wait_for_selector("#send")
        seconds = page.evaluate("performance.now()") / 1000
        page.wait_for_timeout(_QUIET_MS)
        over_wire = [request for request in asked if request not in cached and sizes.get(request, 1) > 0]
        visits[name] = {
            "requests": len(over_wire),
            "kilobytes": sum(sizes.values()) / 1000,
            "page_kilobytes": next((sizes.get(key, 0) for key, at in asked.items() if at == f"{url}/"), 0) / 1000,
            "seconds_until_usable": seconds,
        }
    context.close()
    return visits


def _medians(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    return {
        visit: {
            figure: round(statistics.median(each[visit][figure] for each in rounds), 2) for figure in rounds[0][visit]
        }
        for visit in rounds[0]
    }


if __name__ == "__main__":
    main()
