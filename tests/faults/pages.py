"""Visitors of the web UI: they speak Gradio's event protocol as its page does, without a browser.

A page keeps what a browser keeps across a reload, the stored battle id and cookies, and nothing else. Every second
visitor has a browser that takes no cookies. When the web UI dies, the page is loaded again, restores its battle and
goes on.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import aiohttp
from gradio_client.utils import apply_diff

from tests.faults.ledger import Ledger
from tests.faults.tally import Tally
from tests.faults.visitors import words
from wire.sse import SseDecoder

_EVENT_S = 40.0  #: for one event of a page, with the answers that it follows
_BATTLE_S = 90.0
_REOPEN_S = 0.05  #: before a stream is opened again
_ANSWERS = ("process_generating", "process_completed")
_VOTE_BUTTONS = {"a": "vote-left", "tie": "vote-up", "both_bad": "vote-down", "b": "vote-right"}


class PageLost(Exception):
    """The web UI did not answer, or its answer broke off. `status`: of an error answer, 0 without one."""

    def __init__(self, what: str, status: int = 0) -> None:
        super().__init__(f"{what} {status or ''}")
        self.status = status


@dataclass(frozen=True)
class Layout:
    """Events of the first page by what triggers them, from /config."""

    config: dict[str, Any]

    @cached_property
    def components(self) -> dict[int, dict[str, Any]]:
        """Components by id."""
        return {entry["id"]: entry for entry in self.config["components"]}

    def event(self, elem_id: str | None, trigger: str) -> dict[str, Any]:
        """The first event that this component triggers; None stands for the page itself."""
        for event in self.config["dependencies"]:
            for target, name in event["targets"]:
                own_id = self._component(target).get("props", {}).get("elem_id")
                if name == trigger and (elem_id is None or own_id == elem_id):
                    found: dict[str, Any] = event
                    return found
        raise KeyError((elem_id, trigger))

    def after(self, event_id: int) -> list[dict[str, Any]]:
        """Events that follow when this one is over."""
        return [event for event in self.config["dependencies"] if event.get("trigger_after") == event_id]

    def kind(self, component: int) -> str:
        """The type of a component, such as browserstate."""
        return str(self._component(component).get("type"))

    def value(self, component: int) -> Any:
        """The value that a component has when the page is loaded."""
        return self._component(component).get("props", {}).get("value")

    def _component(self, component: int) -> dict[str, Any]:
        return self.components.get(component, {})


class Page:
    """One tab. `stored_id` is what the browser stores; `thread` and `is_revealed` are what it shows. `cookies` are the
    browser's, by name; None: it takes none."""

    def __init__(
        self,
        url: str,
        layout: Layout,
        http: aiohttp.ClientSession,
        rng: random.Random,
        cookies: dict[str, str] | None = None,
    ) -> None:
        self._url = url
        self._http = http
        self._rng = rng
        self._layout = layout
        self.cookies = cookies
        self._session = ""
        self._last_message: str | None = None  #: number of the newest message of the session that has arrived
        self.stored_id: Any = None
        self.thread: list[str] = []  #: prompt, answer A, answer B, and so on
        self.is_revealed = False

    async def load(self) -> None:
        """Load the page, which restores the stored battle and follows a turn that still runs. Raises PageLost."""
        self._session = f"{self._rng.getrandbits(50):x}"
        self._last_message = None
        await self._run(self._layout.event(None, "load"))

    async def ask(self, content: str) -> None:
        """Send a prompt and follow its answers. Raises PageLost."""
        await self._run(self._layout.event("prompt", "submit"), content)

    async def vote(self, outcome: str) -> None:
        """Click the button of an outcome. Raises PageLost."""
        await self._run(self._layout.event(_VOTE_BUTTONS[outcome], "click"))

    async def _run(self, event: dict[str, Any], text: str | None = None) -> None:
        """One event and those that follow it."""
        await self._send(event, text)
        for following in self._layout.after(event["id"]):
            await self._run(following)

    async def _send(self, event: dict[str, Any], text: str | None) -> None:
        body = {
            "data": [self._input(component, text) for component in event["inputs"]],
            "event_data": None,
            "fn_index": event["id"],
            "trigger_id": event["targets"][0][0],
            "session_hash": self._session,
        }
        try:
            async with asyncio.timeout(_EVENT_S):
                event_id = await self._join(body)
                kinds = [self._layout.kind(component) for component in event["outputs"]]
                async with aclosing(self._steps(event_id)) as steps:
                    async for outputs in steps:
                        for kind, value in zip(kinds, outputs, strict=False):
                            self._show(kind, value)
                        if self.is_revealed:
                            return  # the visitor leaves
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise PageLost(type(error).__name__) from None

    async def _join(self, body: dict[str, Any]) -> str:
        """Send one event; returns its id. Raises PageLost."""
        url = f"{self._url}/gradio_api/queue/join"
        async with self._http.post(url, json=body, headers=self._cookie_header()) as answer:
            if answer.status != 200:
                raise PageLost("join", answer.status)
            if self.cookies is not None:  # aiohttp's own jar takes no cookies of an IP address
                self.cookies.update({name: morsel.value for name, morsel in answer.cookies.items()})
            event_id: str = (await answer.json())["event_id"]
            return event_id

    async def _steps(self, event_id: str) -> AsyncGenerator[list[Any], None]:
        """The outputs of one event, step by step to its end. Gradio sends the second and later steps as changes of the
        one before. Raises PageLost."""
        shown: list[Any] = []
        async with aclosing(self._messages()) as messages:
            async for message in messages:
                if message.get("session_not_found"):
                    raise PageLost("the session is forgotten")
                if message.get("event_id") != event_id or message["msg"] not in _ANSWERS:
                    continue
                outputs: list[Any] = (message.get("output") or {}).get("data") or []
                if message["msg"] == "process_completed":
                    if not message.get("success"):
                        raise PageLost("the event failed")
                    yield outputs
                    return
                if shown:
                    outputs = [apply_diff(before, change) for before, change in zip(shown, outputs, strict=True)]
                shown = outputs
                yield shown

    async def _messages(self) -> AsyncGenerator[dict[str, Any], None]:
        """The messages of the session. A stream that ends in good order is opened again where it was, as a browser does
        (webui/assets/events.js): those of a crowded address take turns. Raises PageLost."""
        while True:
            after = "" if self._last_message is None else f"&after={self._last_message}"
            url = f"{self._url}/gradio_api/queue/data?session_hash={self._session}{after}"
            async with self._http.get(url) as answer:
                if answer.status != 200:
                    raise PageLost("stream", answer.status)
                decoder = SseDecoder()
                async for chunk in answer.content.iter_any():
                    for event in decoder.feed(chunk):
                        self._last_message = event.id or self._last_message
                        yield json.loads(event.data)
            await asyncio.sleep(_REOPEN_S)

    def _cookie_header(self) -> dict[str, str]:
        shown = "; ".join(f"{name}={value}" for name, value in (self.cookies or {}).items())
        return {"Cookie": shown} if shown else {}

    def _show(self, kind: str, value: Any) -> None:
        """Take one output as a browser would, as far as a visitor needs it."""
        if isinstance(value, dict) and value.get("__type__") == "update":
            if "value" not in value:
                return
            value = value["value"]
        if kind == "browserstate":
            self.stored_id = value or None  # no battle is an empty list
        elif kind == "chatbot" and isinstance(value, list):
            self.thread = ["".join(part.get("text", "") for part in message["content"]) for message in value]
        elif _is_reveal(value):
            self.is_revealed = True

    def _input(self, component: int, text: str | None) -> Any:
        match self._layout.kind(component):
            case "state":
                return None
            case "browserstate":
                return self.stored_id
            case "textbox":
                return text
            case _:
                return self._layout.value(component)


def _is_reveal(value: Any) -> bool:
    return isinstance(value, str) and "agon-reveal" in value


async def read_layout(url: str, http: aiohttp.ClientSession) -> Layout:
    """The layout of the pages, which is the same after every start."""
    async with http.get(f"{url}/config", timeout=aiohttp.ClientTimeout(total=20)) as answer:
        return Layout(await answer.json())


@dataclass
class Browser:
    """A visitor who uses the page. `state_of` asks a controller for the state of a battle, where the page shows no
    result."""

    url: str
    layout: Layout
    http: aiohttp.ClientSession
    state_of: Callable[[str], Awaitable[str]]
    ledger: Ledger
    tally: Tally
    rng: random.Random
    pace_s: float = 0.3
    cookies: dict[str, str] | None = None  #: None: this browser takes none
    errors: list[str] = field(default_factory=list)

    async def run(self, stop: asyncio.Event) -> None:
        """Battle after battle until `stop` is set."""
        while not stop.is_set():
            await self.battle()
            await asyncio.sleep(self.rng.uniform(0, self.pace_s))

    async def battle(self, num_words: int | None = None) -> bool:
        """One battle with its vote, over as many loads of the page as it takes; True if the page showed the result."""
        page = Page(self.url, self.layout, self.http, self.rng, self.cookies)
        content, outcome = words(self.rng, num_words), self.rng.choice(sorted(_VOTE_BUTTONS))
        deadline = time.monotonic() + _BATTLE_S
        num_loads, is_loaded, state = 0, False, "open"
        while time.monotonic() < deadline:
            try:
                if not is_loaded:
                    num_loads += 1
                    await page.load()
                    is_loaded = True
                if page.stored_id is None or state == "open":
                    await page.ask(content)
                if page.stored_id is not None:
                    await self.ledger.sent(page.stored_id, outcome)
                    if not page.is_revealed:
                        await page.vote(outcome)
                    if page.is_revealed:
                        return await self._finish(page, content, num_loads)
                    state = await self.state_of(page.stored_id)
                    if state == "aborted":
                        self.tally.count("battles_aborted")
                        return False
            except PageLost as lost:
                self.tally.count("pages_lost")
                if lost.status >= 500 and lost.status != 503:
                    self.tally.break_promise("server_errors", f"web UI: {lost}")
            is_loaded = False
            state = await self.state_of(page.stored_id) if page.stored_id is not None else "open"
            await asyncio.sleep(0.03)
        self.tally.break_promise("never_recovered", f"no result of battle {page.stored_id} ({state}) on the page")
        return False

    async def _finish(self, page: Page, content: str, num_loads: int) -> bool:
        await self.ledger.acknowledged(page.stored_id, None)
        self.tally.count("battles")
        self.tally.count("votes")
        self.tally.count("pages_restored", num_loads - 1)
        if page.thread[-2:] != [content, content]:
            self.tally.break_promise("wrong_tokens", f"battle {page.stored_id} shows {str(page.thread)[:200]}")
        return True
