"""What a person sees, and for how long, when a process dies: python -m tests.e2e.pauses [--json FILE] [--tree FOLDER]

Starts `agon up` with two models that echo the question, one worker each, and battles in headless Chromium. Each process
in turn is killed with SIGKILL while both answers stream, just before a question is sent, and just after a vote is
clicked; the supervisor starts it again. Prints one JSON line for each: the notices that were seen with their seconds,
the longest time in which nothing grew, and whether question, answers and vote arrived. `--tree` measures the code of
another folder with this interpreter's packages.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as NotInTime

from cli.bench.record import commit, machine
from tests.browser import find_browser
from tests.e2e.arena import UpProcess, arena

QUESTION = " ".join(f"word{number}" for number in range(1, 121))
ROLES = ("worker", "controller", "store", "webui")
MOMENTS = ("streaming", "asking", "voting")
_GIVE_UP_S = 60.0
_TOKENS_PER_S = "25"
#: Reports the length of the conversation and the visible notices whenever they change.
_WATCH = """
(() => {
  let last = "";
  const isSeen = (element) => element.checkVisibility && element.checkVisibility() && element.innerText.trim() !== "";
  setInterval(() => {
    const thread = document.querySelector("#thread");
    const notices = [...document.querySelectorAll("#agon-away, #notice, .agon-notice, .toast-body, .agon-toast")]
      .filter(isSeen)  // Gradio's own clock of an event is not painted
      .map((element) => element.innerText.replace(/(queue: \\S+ \\| |processing \\| )?[\\d.\\/]+s/g, "").trim())
      .filter(Boolean);
    const now = JSON.stringify([thread ? thread.innerText.length : 0, [...new Set(notices)]]);
    if (now !== last) window.agonSaw(last = now);
  }, 50);
})();
"""


@dataclass
class Watch:
    """What the page has shown, with the times of its changes."""

    changes: list[tuple[float, int, list[str]]] = field(default_factory=list)

    def saw(self, text: str) -> None:
        """Note a change."""
        num_chars, notices = json.loads(text)
        self.changes.append((time.monotonic(), num_chars, notices))

    def since(self, start: float, end: float) -> dict[str, Any]:
        """Notices with their seconds, and the longest time between two changes of the conversation."""
        seconds: dict[str, float] = {}
        grew, pauses, chars = start, [0.0], None
        times = [*(at for at, _, _ in self.changes), end]
        for (at, num_chars, notices), until in zip(self.changes, times[1:], strict=True):
            for notice in notices:
                seen = min(until, end) - max(at, start)
                if seen > 0:
                    seconds[notice] = seconds.get(notice, 0.0) + seen
            if num_chars != chars and start <= at <= end:
                pauses.append(at - grew)
                grew = at
            chars = num_chars
        pauses.append(end - grew)
        return {
            "notices": {notice: round(number, 1) for notice, number in seconds.items()},
            "longest_pause_s": round(max(pauses), 1),
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tree", type=Path, help="measure the code of this folder")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--role", choices=ROLES, action="append", help="only this process")
    arguments = parser.parse_args()
    environment = {"AGON_ECHO_TOKENS_PER_S": _TOKENS_PER_S}
    if arguments.tree is not None:
        environment["PYTHONPATH"] = str(arguments.tree.resolve())
    rows = []
    with _arena(environment) as up, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        for role in arguments.role or ROLES:
            for moment in MOMENTS:
                rows.append({"killed": role, "while": moment, **_measure(up, browser, role, moment)})
                print(json.dumps(rows[-1]), flush=True)
        browser.close()
    result = {"commit": commit(), "tree": str(arguments.tree or ""), "machine": machine(), "rows": rows}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


@contextmanager
def _arena(environment: dict[str, str]) -> Iterator[UpProcess]:
    with tempfile.TemporaryDirectory(prefix="agon-pauses-") as name:
        model = Path(name) / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps({"model_type": "echo"}))
        flags = ["--no-demos", "--isolate", "--engine", "echo", "--model", f"left={model}", "--model", f"right={model}"]
        with arena(Path(name) / "data", flags, 2, **environment) as up:
            up.wait_ready()
            yield up


def _measure(up: UpProcess, browser: Browser, role: str, moment: str) -> dict[str, Any]:
    up.wait_workers("left", "right")
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    watch = Watch()
    page.expose_function("agonSaw", watch.saw)
    page.add_init_script(_WATCH)
    page.goto(up.webui_url)
    page.wait_for_selector("#send")
    before = _num_votes(up)
    killed = "left" if role == "worker" else role
    try:
        result = _play(page, up, killed, moment, watch)
    finally:
        context.close()
    up.wait_workers("left", "right", heard_since=time.monotonic())
    return {**result, "votes": _num_votes(up) - before}


def _play(page: Page, up: UpProcess, killed: str, moment: str, watch: Watch) -> dict[str, Any]:
    """One battle with one kill in it."""
    started = 0.0

    def kill() -> None:
        nonlocal started
        started = time.monotonic()
        up.kill(killed)

    reached = "nothing"
    page.set_default_timeout(_GIVE_UP_S * 1000)
    try:
        page.fill("#prompt textarea", QUESTION)
        if moment == "asking":
            kill()
        page.click("#send")
        page.locator("#thread .bot-row .md").nth(1).get_by_text("word9").wait_for()
        reached = "answers have begun"
        if moment == "streaming":
            kill()
        page.wait_for_selector("#vote-left")
        whole = page.locator("#thread .bot-row .md", has_text="word120").count() == 2
        reached = "both answers are whole" if whole else "answers are cut"
        page.click("#vote-left")
        if moment == "voting":
            kill()
        page.wait_for_selector(".agon-reveal")
        reached = "names are shown"
    except NotInTime:
        reached = f"{reached}, then nothing for {_GIVE_UP_S:.0f} s"
    seen = watch.since(started or time.monotonic(), time.monotonic())
    texts = [*page.locator("#thread").all_inner_texts(), page.input_value("#prompt textarea")]
    return {**seen, "reached": reached, "question_is_there": any("word120" in text for text in texts)}


def _num_votes(up: UpProcess) -> int:
    token = json.loads((up.data_dir / "secrets.json").read_text())["admin_token"]
    headers = {"Authorization": f"Bearer {token}"}
    deadline = time.monotonic() + _GIVE_UP_S
    while True:
        try:
            answer = httpx.get(f"{up.controller_url}/arena/votes", headers=headers, trust_env=False).raise_for_status()
            return len([line for line in answer.text.splitlines() if '"vote_id"' in line])
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
