"""What a page costs a visitor's connection, in Chromium with its cache: a first visit, and the next one."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.webui.conftest import PATIENCE_MS, Site

MOST_FIRST_KB, MOST_NEXT_KB = 400, 40
MOST_FIRST, MOST_NEXT = 70, 14  #: requests; Gradio's page is some sixty modules


@dataclass
class Wire:
    """What went over the network since `begin`."""

    page: Page
    urls: dict[str, str] = field(default_factory=dict)  #: by request
    cached: set[str] = field(default_factory=set)
    sizes: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        network = self.page.context.new_cdp_session(self.page)
        network.send("Network.enable")
        network.on("Network.requestWillBeSent", self._sent)
        network.on("Network.requestServedFromCache", lambda event: self.cached.add(event["requestId"]))
        network.on("Network.loadingFinished", self._finished)

    def _sent(self, event: dict[str, Any]) -> None:
        self.urls[event["requestId"]] = event["request"]["url"]

    def _finished(self, event: dict[str, Any]) -> None:
        self.sizes[event["requestId"]] = event["encodedDataLength"]

    def visit(self, url: str) -> tuple[list[str], float]:
        """Open the page; the requests that left the browser, and their kilobytes."""
        for seen in (self.urls, self.cached, self.sizes):
            seen.clear()
        self.page.goto(url)
        self.page.wait_for_selector("#send")
        self.page.wait_for_load_state("networkidle")
        sent = [url for key, url in self.urls.items() if key not in self.cached and self.sizes.get(key, 1) > 0]
        return sent, sum(self.sizes.values()) / 1000


@pytest.fixture
def wire(browser: Browser) -> Iterator[Wire]:
    """A new browser: nothing of the pages is in its cache."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    yield Wire(context.new_page())
    context.close()


def test_a_first_visit_is_light_and_the_next_one_asks_for_no_file_again(site: Site, wire: Wire) -> None:
    sent, kilobytes = wire.visit(site.url)
    assert len(sent) <= MOST_FIRST, sent
    assert kilobytes <= MOST_FIRST_KB
    sent, kilobytes = wire.visit(site.url)
    assert [url for url in sent if "/assets/" in url or "/static/" in url] == []
    assert len(sent) <= MOST_NEXT, sent
    assert kilobytes <= MOST_NEXT_KB
