"""A browser whose network is cut: what was asked, typed and clicked arrives, once, and the page is not loaded anew."""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.faults.proxy import FaultProxy
from tests.ports import reserved_port
from tests.webui.conftest import Site, Visit
from webui import texts

NUM_TABS = 7  #: a browser opens six connections to a host


class Network:
    """The way from the browser to the web UI. Runs in a loop of its own, since the browser's calls block."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._proxy = FaultProxy(port, target, random.Random(0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.mend()

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(10)

    def cut(self) -> None:
        """Every connection breaks, and none can be made."""
        self._run(self._proxy.stop)

    def mend(self) -> None:
        self._run(self._proxy.start)

    def blink(self) -> None:
        """Every connection breaks; new ones can be made at once."""

        async def reset() -> None:
            self._proxy.reset_all()

        self._run(reset)


@pytest.fixture
def network(site: Site, visit: Visit) -> Generator[Network, None, None]:
    with reserved_port() as port:
        network = Network(port, int(site.url.rpartition(":")[2]))
        visit.site = Site(f"http://127.0.0.1:{port}", site.arena, site.app)
        yield network
        network.cut()


def opened(visit: Visit) -> Page:
    """A page that remembers that it was not loaded anew."""
    page = visit.open("/")
    page.locator(".agon-example").first.wait_for()
    page.evaluate("window.isFirst = true")
    return page


def away(page: Page) -> Any:
    return page.locator("#agon-away", has_text=texts.RECONNECTING)


def test_a_question_that_is_sent_while_the_network_is_cut_arrives_once(visit: Visit, network: Network) -> None:
    page = opened(visit)
    num_battles = len(visit.site.arena.battles)
    network.cut()
    visit.ask("Hello!")
    away(page).wait_for()
    network.mend()
    page.wait_for_selector("#vote-left")
    assert page.locator(".user-row").count() == 1
    assert len(visit.site.arena.battles) == num_battles + 1
    assert away(page).count() == 0
    assert page.evaluate("window.isFirst")
    assert visit.errors == []


@pytest.mark.usefixtures("slow_models")
def test_answers_go_on_where_the_network_was_cut(visit: Visit, network: Network) -> None:
    page = opened(visit)
    visit.ask("slow: tell me a story")
    page.locator("#thread .bot-row .md", has_text="Once").first.wait_for()
    page.fill("#prompt textarea", "typed meanwhile")
    for _ in range(3):
        network.blink()
        page.wait_for_timeout(150)
    network.cut()
    away(page).wait_for()
    network.mend()
    page.click("#stop")
    page.wait_for_selector("#vote-left")
    assert page.evaluate("window.isFirst")
    assert page.input_value("#prompt textarea") == "typed meanwhile"
    assert page.locator(".user-row").count() == 1


def test_a_vote_that_is_clicked_while_the_network_is_cut_is_recorded_once(visit: Visit, network: Network) -> None:
    page = opened(visit)
    visit.ask_and_wait("Hello!")
    num_votes = len(visit.site.arena.votes)
    network.cut()
    page.click("#vote-left")
    away(page).wait_for()
    network.mend()
    page.wait_for_selector(".agon-reveal")
    assert len(visit.site.arena.votes) == num_votes + 1
    assert page.evaluate("window.isFirst")


def test_the_answer_to_a_question_that_has_arrived_may_be_lost(visit: Visit, network: Network) -> None:
    """The server has it, the browser does not know: it is sent again and not taken twice."""
    page = opened(visit)
    num_battles = len(visit.site.arena.battles)
    sent: list[str] = []

    def lose_answer(route: Any) -> None:
        sent.append(route.request.headers["x-agon-event"])
        if len(sent) == 1:
            route.fetch()
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/gradio_api/queue/join*", lose_answer)
    visit.ask_and_wait("Hello!")
    assert sent.count(sent[0]) == 2
    assert page.locator(".user-row").count() == 1
    assert len(visit.site.arena.battles) == num_battles + 1


#: The head of the first answer to an event arrives, its body does not: the server was killed between the two.
CUT_BODY = """
const send = window.fetch;
let isCut = false;
window.fetch = async (input, init) => {
  const response = await send(input, init);
  if (isCut || !String(input.url ?? input).includes("/queue/join") || !init.body.includes("Hello!")) return response;
  isCut = true;
  await response.text();
  const body = new ReadableStream({ pull: (controller) => controller.error(new TypeError("network error")) });
  return new Response(body, { status: response.status, headers: response.headers });
};
"""


def test_an_answer_that_breaks_after_its_head_is_a_lost_answer(visit: Visit, network: Network) -> None:
    visit.page.add_init_script(CUT_BODY)
    page = opened(visit)
    num_battles = len(visit.site.arena.battles)
    visit.ask_and_wait("Hello!")
    assert page.locator(".user-row").count() == 1
    assert len(visit.site.arena.battles) == num_battles + 1
    assert page.evaluate("window.isFirst")
    assert visit.errors == []


def test_a_question_goes_to_another_server_though_the_load_of_its_page_is_not_over(visit: Visit) -> None:
    """The web UI is killed in the second in which a page was opened and a question was sent. What ends the load of the
    page brings nothing along: it must not keep the question from being sent again."""
    page = visit.page
    held: list[Any] = []
    asked: list[Any] = []

    def join(route: Any) -> None:
        data = route.request.post_data_json["data"]
        if data == [None] and not asked:
            held.append(route)
        elif "Hello!" in data and not asked:
            asked.append(data)
            page.route("**/alive*", lambda alive: alive.fulfill(json={"server": "another"}))
            route.abort("connectionreset")
        else:
            to_another(route)

    def to_another(route: Any) -> None:
        """The server plays the other one, too: the page names one that is not there. A page asks another server for all
        messages, which this one has no longer where the page had read some."""
        headers = {name: it for name, it in route.request.headers.items() if name != "x-agon-server"}
        route.continue_(headers=headers, url=route.request.url.replace("&after=0", ""))

    page.route("**/gradio_api/queue/join*", join)
    page.route("**/gradio_api/queue/data*", to_another)
    opened(visit)
    visit.wait_until(lambda: bool(held))
    num_battles = len(visit.site.arena.battles)
    visit.ask("Hello!")
    visit.wait_until(lambda: len(visit.site.arena.battles) > num_battles)
    to_another(held[0])
    page.wait_for_selector("#vote-left")
    assert page.evaluate("window.isFirst")
    assert page.locator(".user-row").count() == 1
    assert len(visit.site.arena.battles) == num_battles + 1


def test_a_page_without_a_request_under_way_notices_that_its_server_is_away(visit: Visit, network: Network) -> None:
    """Nothing of the page but the watch itself can notice it."""
    page = opened(visit)
    visit.wait_until(lambda: page.evaluate("window.agonConnection.session") != "")
    network.cut()
    away(page).wait_for()
    network.mend()
    away(page).wait_for(state="detached")
    assert page.evaluate("window.isFirst")


def test_a_page_that_has_lost_its_events_does_not_reload_under_a_visitor_who_goes_to_another(visit: Visit) -> None:
    """The reload would undo the click."""
    page = visit.open("/")
    asked: list[Route] = []
    page.route("**/leaderboard", lambda route: asked.append(route))
    page.evaluate("location.href = 'leaderboard'; agonConnection.lost()")
    visit.wait_until(lambda: bool(asked))
    page.wait_for_timeout(1500)  # twice the longest time until a reload
    asked[0].continue_()
    page.wait_for_url("**/leaderboard")


@pytest.mark.usefixtures("slow_models")
def test_more_tabs_than_a_browser_has_connections_get_their_answers(site: Site, browser: Browser) -> None:
    context = browser.new_context()
    try:
        pages = [context.new_page() for _ in range(NUM_TABS)]
        for page in pages:
            page.goto(site.url)
            page.fill("#prompt textarea", "slow: tell me a story")
            page.press("#prompt textarea", "Enter")
        for page in pages:
            page.locator("#thread .bot-row .md", has_text="Once").first.wait_for()
    finally:
        context.close()
