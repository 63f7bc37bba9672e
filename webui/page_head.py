"""Our scripts and colours at the head of every page, before Gradio's own.

Gradio's `head` is added by its script when the page is already being built: what it sent until then went past ours, so
that a page without a further request never noticed that its server was away.
"""

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEAD: Final = b"<head>"


class PageHead:
    """ASGI middleware around Gradio that adds `head` to each of its pages."""

    def __init__(self, app: ASGIApp, head: str) -> None:
        self._app = app
        self._head = head.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; the body of an HTML page is held back until it is whole."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def with_head(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_page(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body"):
                    whole = body.replace(_HEAD, _HEAD + self._head, 1)
                    MutableHeaders(scope=start)["Content-Length"] = str(len(whole))
                    await send(start)
                    await send({"type": "http.response.body", "body": whole})

        await self._app(scope, receive, with_head)


def _is_page(start: Message) -> bool:
    return start["status"] == 200 and Headers(raw=start["headers"]).get("content-type", "").startswith("text/html")
