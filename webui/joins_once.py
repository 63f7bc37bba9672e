"""An event that a page sends again is taken once.

A page whose connection breaks while it sends a question or a vote cannot know whether that arrived, and sends it again
with the same key (`X-Agon-Event`). The second one gets the answer to the first.
"""

import asyncio
import re
import time
from collections import OrderedDict
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webui.limits import JOIN

KEY_HEADER: Final = "x-agon-event"
KEPT_S: Final = 300.0  #: for so long a page may be cut off and find its answer
CAPACITY: Final = 20_000  #: answers, some 1 KB each

_IS_KEY: Final = re.compile(r"[0-9a-f]{32}")

Answer = list[Message]


class JoinsOnce:
    """ASGI middleware around everything that an event passes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._answers: OrderedDict[str, tuple[float, asyncio.Future[Answer]]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it as the one before with the same key was answered."""
        key = Headers(scope=scope).get(KEY_HEADER, "") if scope["type"] == "http" and scope["path"] == JOIN else ""
        if scope.get("method") != "POST" or _IS_KEY.fullmatch(key) is None:
            await self._app(scope, receive, send)
            return
        known = self._answers.get(key)
        if known is not None:
            for message in await asyncio.shield(known[1]):
                await send(message)
            return
        self._forget()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[key] = time.monotonic(), answer
        messages: Answer = []

        async def noted(message: Message) -> None:
            messages.append(message)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            is_taken = bool(messages) and messages[0].get("status") == 200 and not messages[-1].get("more_body")
            if is_taken:
                answer.set_result(messages)
            else:  # refused or failed: the page may try again
                del self._answers[key]
                answer.set_result(messages or _UNAVAILABLE)

    def _forget(self) -> None:
        before = time.monotonic() - KEPT_S
        while self._answers:
            key, (since, answer) = next(iter(self._answers.items()))
            if (since > before and len(self._answers) < CAPACITY) or not answer.done():
                return
            del self._answers[key]


_UNAVAILABLE: Final[Answer] = [
    {"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"1"), (b"content-length", b"0")]},
    {"type": "http.response.body", "body": b""},
]
