"""Any one process is killed while a battle streams into a browser: the page pauses, goes on, and takes one vote.

The processes of this arena are started by this test and not by `agon up`: two controllers, two workers a model.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from cli.arena.embedded_redis import EmbeddedRedis, find_binary
from tests.e2e.arena import free_ports
from webui import texts

READY_S = 120.0
PATIENCE_MS = 60_000
QUESTION = " ".join(f"word{number}" for number in range(1, 121))
TOKENS_PER_S = "25"
RESTART_AFTER_S = 1.0  #: after its death, as the supervisor does
TOKENS = {"AGON_WORKER_TOKEN": "kills-worker-token-0123456789", "AGON_ADMIN_TOKEN": "kills-admin-token-0123456789"}
WORKERS = ("left-1", "left-2", "right-1", "right-2")


@dataclass
class Processes:
    """The processes of one arena by role. All can be killed and started again at the same ports."""

    commands: dict[str, list[str]]
    environment: dict[str, str]
    logs: Path
    ports: dict[str, int]
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    client: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False, verify=False, timeout=10))

    def start(self, role: str) -> None:
        with open(self.logs / f"{role}.log", "ab") as log:
            self.running[role] = subprocess.Popen(
                self.commands[role], env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, role: str) -> None:
        self.running[role].send_signal(signal.SIGKILL)
        self.running[role].wait()

    def restart(self, role: str) -> None:
        """As the supervisor does: some time after the death."""
        time.sleep(RESTART_AFTER_S)
        self.start(role)

    def url(self, role: str) -> str:
        return f"http://127.0.0.1:{self.ports[role]}"

    def get(self, role: str, path: str) -> httpx.Response | None:
        token = TOKENS["AGON_WORKER_TOKEN" if role in WORKERS else "AGON_ADMIN_TOKEN"]
        headers = {"Authorization": f"Bearer {token}"}
        try:
            return self.client.get(self.url(role) + path, headers=headers)
        except httpx.HTTPError:
            return None

    def wait_ready(self) -> None:
        """Wait until every process answers and both controllers route to all four workers."""
        deadline = time.monotonic() + READY_S
        while not self._is_ready():
            assert time.monotonic() < deadline, self.report()
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        ready = self.get("webui", "/ready")
        if ready is None or ready.status_code != 200:
            return False
        for role in ("controller-1", "controller-2"):
            workers = self.get(role, "/arena/workers")
            if workers is None or workers.status_code != 200:
                return False
            if sum(row["state"] == "ready" and row["last_heartbeat_age_s"] < 3 for row in workers.json()) != 4:
                return False
        return True

    def busy_worker(self) -> str:
        """A worker that answers now."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for role in WORKERS:
                metrics = self.get(role, "/metrics")
                if metrics is not None and re.search(r"^agon_requests_running\S* [1-9]", metrics.text, re.MULTILINE):
                    return role
        raise AssertionError("no worker answers anything")

    def votes(self) -> list[str]:
        """Battle ids of all recorded votes."""
        deadline = time.monotonic() + READY_S
        while (answer := self.get("controller-2", "/arena/votes")) is None or answer.status_code != 200:
            assert time.monotonic() < deadline, self.report()
            time.sleep(0.1)
        return [json.loads(line)["battle_id"] for line in answer.text.splitlines()]

    def report(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.logs.glob("*.log")))


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("kills")
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "echo"}))
    store = EmbeddedRedis(folder / "store", find_binary())
    store.prepare()
    first = free_ports(5).controller
    ports = {role: first + number for number, role in enumerate(("controller-1", "controller-2", "webui", *WORKERS))}
    urls = [f"http://127.0.0.1:{ports[role]}" for role in ("controller-1", "controller-2")]

    def service(package: str, role: str, *flags: str) -> list[str]:
        return [sys.executable, "-P", "-m", package, "--port", str(ports[role]), *flags]

    commands = {
        "store": list(store.command),
        "controller-1": service("controller", "controller-1"),
        "controller-2": service("controller", "controller-2"),
        "webui": service("webui", "webui", "--controller", ",".join(urls)),
        **{
            role: service(
                *("model_worker", role, "--model", f"{role.partition('-')[0]}={model}", "--engine", "echo"),
                *("--controller", urls[0], "--controller", urls[1]),
            )
            for role in WORKERS
        },
    }
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AGON_", "REDIS_"))}
    settings = {"AGON_REDIS_URL": store.url, "AGON_ECHO_TOKENS_PER_S": TOKENS_PER_S, "AGON_WEBUI_UNDO_S": "1"}
    environment = {**own, **TOKENS, **settings}
    found = Processes(commands, environment, folder, ports)
    try:
        for role in commands:
            found.start(role)
        found.wait_ready()
        yield found
    finally:
        found.client.close()
        for process in found.running.values():
            process.kill()
            process.wait()


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
    page.goto(processes.url("webui"))
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


@pytest.mark.parametrize("role", ["webui", "worker", "store", "controller-1"])
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
    page.goto(f"{processes.url('webui')}/chat")
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
