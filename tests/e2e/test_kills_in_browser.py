"""Any one process is killed while a battle streams into a browser: the page pauses, goes on, and takes one vote.

The processes of this arena are started by this test and not by `agon up`: two controllers, two workers a model.
"""

import ssl
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Request, Response, sync_playwright

from tests.e2e.processes import PREFIX, PROXIES, TOKENS, WEBUIS, Processes, echo_processes
from tests.e2e.proxies import CA, caddy_command, nginx_command
from webui import texts

PATIENCE_MS = 60_000
JSON = {"Content-Type": "application/json"}
QUESTION = " ".join(f"word{number}" for number in range(1, 121))


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with echo_processes(tmp_path_factory.mktemp("kills")) as found:
        yield found


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, processes: Processes) -> Iterator[Page]:
    """The first page of a new visitor. All processes are ready."""
    processes.wait_ready()
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    streams: Counter[str] = Counter()  # a stream ends when the server or the page closes it, whichever comes first

    def note(state: str, request: Request) -> None:
        if "/queue/data" in request.url:
            streams[state] += 1

    page.on("request", lambda request: note("begun", request))
    page.on("requestfinished", lambda request: note("ended", request))
    page.on("requestfailed", lambda request: note("ended", request))
    page.goto(f"{processes.url('webui')}{PREFIX}/")
    page.locator(".agon-intro").wait_for()
    give_up_at = time.monotonic() + PATIENCE_MS / 1000
    num_quiet = 0
    while num_quiet < 5:  # its load may still be on: a stream that ended too early is opened again at once
        num_quiet = num_quiet + 1 if 0 < streams["begun"] == streams["ended"] else 0
        assert time.monotonic() < give_up_at, streams
        page.wait_for_timeout(50)
    yield page
    context.close()


def ask(page: Page) -> None:
    """Send a question in a new battle and wait until both sides have begun to answer."""
    if page.locator("#new").is_visible():
        page.click("#new")
        page.locator(".agon-intro").wait_for()
    page.fill("#prompt textarea", QUESTION)
    page.click("#send")
    for side in (0, 1):
        page.locator("#thread .bot-row .md").nth(side).get_by_text("word4").wait_for()


def finish_and_vote(page: Page, processes: Processes) -> None:
    """The battle comes to its end: both answers are whole, and its vote is recorded once."""
    before = processes.votes()
    page.locator("#vote-left").wait_for()
    answers = [" ".join(text.split()) for text in page.locator("#thread .bot-row .md").all_inner_texts()]
    assert answers == [QUESTION, QUESTION]
    assert page.locator(".agon-notice").count() == 0
    assert page.locator("#agon-away", has_text=texts.RECONNECTING).count() == 0
    page.click("#vote-left")
    page.locator(".agon-reveal").wait_for()
    assert texts.VOTED["a"] in page.inner_text(".agon-reveal")
    after = processes.votes()
    assert len(after) == len(before) + 1
    assert len(set(after)) == len(after)


@pytest.mark.parametrize("role", ["webui", "worker", "store"])
def test_a_killed_process_is_a_pause(page: Page, processes: Processes, role: str, tmp_path: Path) -> None:
    ask(page)
    killed = processes.busy_worker() if role == "worker" else role
    page.fill("#prompt textarea", "typed meanwhile")
    processes.kill(killed)
    if role == "webui":
        page.locator("#agon-away", has_text=texts.RECONNECTING).wait_for()
    page.screenshot(path=tmp_path / f"{role}-away.png")
    processes.restart(killed)
    finish_and_vote(page, processes)
    assert page.input_value("#prompt textarea") == "typed meanwhile"
    page.fill("#prompt textarea", "")
    page.screenshot(path=tmp_path / f"{role}-after.png")


def test_a_chat_goes_on_when_its_controller_and_the_web_ui_are_killed(page: Page, processes: Processes) -> None:
    page.goto(f"{processes.url('webui')}{PREFIX}/chat")
    page.wait_for_function("document.querySelector('#model input')?.value === 'left'")
    page.fill("#prompt textarea", QUESTION)
    page.click("#send")
    page.locator("#thread .bot-row .md").get_by_text("word4").wait_for()
    for role in ("controller-1", "webui"):
        processes.kill(role)
    for role in ("controller-1", "webui"):
        processes.restart(role)
    page.locator("#retry").wait_for()
    assert " ".join(page.inner_text("#thread .user-row .md").split()) == QUESTION
    assert " ".join(page.inner_text("#thread .bot-row .md").split()) == f"left {QUESTION}"
    assert page.input_value("#model input") == "left"


def test_a_vote_whose_click_the_dying_web_ui_has_taken_is_recorded_once(page: Page, processes: Processes) -> None:
    """The page was loaded anew and showed the vote bar again: the event was neither on its way nor answered."""
    ask(page)
    page.locator("#vote-left").wait_for()
    before = processes.votes()
    with page.expect_response(lambda response: response.url.endswith("/queue/join?")):
        page.click("#vote-left")
    processes.kill("webui")
    processes.restart("webui")
    page.locator(".agon-reveal").wait_for()
    assert len(processes.votes()) == len(before) + 1


def test_a_question_that_the_dying_web_ui_has_taken_is_answered(page: Page, processes: Processes) -> None:
    page.fill("#prompt textarea", QUESTION)
    with page.expect_response(lambda response: QUESTION in (response.request.post_data or "")):
        page.click("#send")
    processes.kill("webui")
    processes.restart("webui")
    finish_and_vote(page, processes)


def test_while_one_controller_is_down_votes_and_battles_go_to_the_other(page: Page, processes: Processes) -> None:
    ask(page)
    page.locator("#vote-left").wait_for()
    processes.kill("controller-1")
    finish_and_vote(page, processes)
    ask(page)
    finish_and_vote(page, processes)
    processes.restart("controller-1")


def test_an_idle_page_notices_that_the_web_ui_was_restarted(page: Page, processes: Processes) -> None:
    page.evaluate("window.isFirst = true")
    processes.kill("webui")
    page.locator("#agon-away", has_text=texts.RECONNECTING).wait_for()
    processes.restart("webui")
    page.wait_for_function("window.isFirst === undefined")
    page.locator("#prompt textarea").wait_for()


@dataclass(frozen=True)
class Proxied:
    """The arena as the world sees it, through nginx with TLS, a path prefix and two web UIs."""

    url: str  #: without a slash at its end
    port: int
    processes: Processes
    tls: ssl.SSLContext
    client: httpx.Client


@pytest.fixture(scope="module")
def proxied(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("nginx")
    processes.commands["nginx"] = nginx_command(folder, processes.ports["nginx"], processes.ports)
    processes.start(WEBUIS[1])
    processes.start("nginx")
    processes.wait_ready()
    port = processes.ports["nginx"]
    tls = ssl.create_default_context(cafile=CA)
    with httpx.Client(trust_env=False, verify=tls, timeout=30) as client:
        yield Proxied(f"https://127.0.0.1:{port}{PREFIX}", port, processes, tls, client)


@dataclass
class PublicVisit:
    """A page of a visitor behind nginx, and everything about it that should not be."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)
    is_cut: bool = False  #: while servers are killed, requests fail

    def note_console(self, kind: str, text: str) -> None:
        if kind == "error" and not self.is_cut:
            self.problems.append(text)

    def note_response(self, response: Response) -> None:
        if response.status >= 400 and not self.is_cut:
            self.problems.append(f"{response.status} {response.url}")

    def note_request(self, request: Request) -> None:
        if request.url.startswith("https:") and not request.url.startswith(f"{self.url}/"):
            self.problems.append(f"outside of the prefix: {request.url}")


@pytest.fixture
def public(browser: Browser, proxied: Proxied) -> Iterator[PublicVisit]:
    """The first page of a new visitor."""
    proxied.processes.wait_ready()
    context = browser.new_context(viewport={"width": 1280, "height": 800}, ignore_https_errors=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    visit = PublicVisit(page, proxied.url)
    page.on("console", lambda message: visit.note_console(message.type, message.text))
    page.on("response", visit.note_response)
    page.on("request", visit.note_request)
    page.goto(f"{proxied.url}/")
    page.locator(".agon-intro").wait_for()
    yield visit
    context.close()


def server_of(page: Page, processes: Processes) -> str:
    """The web UI that keeps the page's events."""
    wanted = page.locator("meta[name=agon-server]").get_attribute("content")
    for role in WEBUIS:
        answer = processes.get(role, "/alive")
        if answer is not None and answer.json()["server"] == wanted:
            return role
    raise AssertionError("the page's server is none of ours")


def test_behind_a_proxy_a_web_ui_and_a_controller_die_during_a_battle(public: PublicVisit, proxied: Proxied) -> None:
    page, processes = public.page, proxied.processes
    ask(page)
    killed = [server_of(page, processes), processes.busy_controller()]
    other = next(role for role in WEBUIS if role not in killed)
    metrics = processes.get(other, "/metrics")
    assert metrics is not None
    assert 'agon_webui_passed_on_total{outcome="answered"}' in metrics.text  # not sticky: it got requests of this page
    assert public.problems == []
    page.fill("#prompt textarea", "typed meanwhile")
    public.is_cut = True
    for role in killed:
        processes.kill(role)
    finish_and_vote(page, processes)
    assert page.input_value("#prompt textarea") == "typed meanwhile"
    assert server_of(page, processes) == other
    assert [proxied.client.get(f"{proxied.url}{path}").status_code for path in ("/", "/api/ready") * 3] == [200] * 6
    for role in killed:
        processes.restart(role)


def test_all_pages_work_under_the_prefix(public: PublicVisit, proxied: Proxied, tmp_path: Path) -> None:
    page = public.page
    page.fill("#prompt textarea", "Hello")
    page.click("#send")
    page.click("#vote-left")
    kept = page.locator(".agon-keep").get_attribute("href") or ""
    for number in range(page.locator(".agon-header nav a").count()):
        page.locator(".agon-header nav a").nth(number).click()
        page.locator("#send, #board :is(table, .agon-worker)").first.wait_for()
        page.screenshot(path=tmp_path / f"page-{number}.png")
    page.goto(f"{proxied.url}/leaderboard/")  # Gradio redirects to the spelling without the slash
    file = page.locator("#csv-ratings").get_attribute("href") or ""
    assert page.context.request.get(f"https://127.0.0.1:{proxied.port}{file}").text().startswith("model,")

    page.goto(f"https://127.0.0.1:{proxied.port}{kept}")
    page.click("#share")
    page.click("#link")
    page.locator("nav a", has_text=texts.HISTORY).click()
    page.locator(".battles a").first.click()
    page.click("#forget")
    page.wait_for_url(f"{proxied.url}/history")
    page.goto(f"{proxied.url}/about")
    page.locator(".agon-about h1").wait_for()

    page.locator(".agon-language summary").click()
    with page.expect_navigation():
        page.locator("[data-language=de]").click()
    assert page.evaluate("document.documentElement.lang") == "de"
    assert {(cookie["path"], cookie["secure"]) for cookie in page.context.cookies()} == {(PREFIX, True)}

    page.goto(f"{proxied.url}/admin")
    page.fill("#token", TOKENS["AGON_ADMIN_TOKEN"])
    page.click("#sign-in button")
    page.locator("#desk section").first.wait_for()
    page.screenshot(path=tmp_path / "admin.png")
    assert [problem for problem in public.problems if "/admin/desk" not in problem and "401" not in problem] == []


@pytest.mark.parametrize("proxy", PROXIES)
def test_the_api_through_a_proxy(proxied: Proxied, proxy: str, tmp_path: Path) -> None:
    processes = proxied.processes
    url = f"https://127.0.0.1:{processes.ports[proxy]}{PREFIX}"
    if proxy not in processes.running:
        processes.commands[proxy] = caddy_command(tmp_path, processes.ports[proxy], processes.ports)
        processes.start(proxy)
        processes.wait_answer(f"{url}/ready")
    client = proxied.client
    assert client.get(f"{url}/api/openapi.json").json()["servers"] == [{"url": f"{PREFIX}/api"}]
    assert f"{PREFIX}/api" in client.get(f"{url}/api/docs").text
    assert client.post(f"{url}/api/internal/workers/heartbeat").status_code == 404
    assert client.get(f"{url}/api/ready", headers={"X-Long": "x" * 12_000}).status_code == 200
    too_large = client.post(f"{url}/api/v1/chat/completions", content=b" " * 1_500_000, headers=JSON)
    assert too_large.json()["error"]["code"] == "request_too_large"

    request = {"model": "left", "messages": [{"role": "user", "content": QUESTION}], "stream": True, "max_tokens": 20}
    arrivals = []
    with client.stream("POST", f"{url}/api/v1/chat/completions", json=request) as answer:
        for _ in answer.iter_raw():
            arrivals.append(time.monotonic())
    assert arrivals[-1] - arrivals[0] > 0.3  # 20 tokens at 25 a second, not all at once
    assert len(arrivals) > 5


def test_clients_behind_a_proxy_have_their_own_addresses(proxied: Proxied) -> None:
    request = {"model": "left", "messages": [{"role": "user", "content": "Hello"}]}
    remaining = []
    for address in ("127.0.0.77", "127.0.0.77", "127.0.0.78"):
        transport = httpx.HTTPTransport(local_address=address, verify=proxied.tls)
        with httpx.Client(transport=transport, timeout=30) as client:
            forged = {"X-Forwarded-For": "203.0.113.9"}
            answer = client.post(f"{proxied.url}/api/v1/chat/completions", json=request, headers=forged)
        remaining.append(int(answer.headers["x-ratelimit-remaining-requests"]))
    assert remaining[1] < remaining[0] == remaining[2]
