"""Gradio's pages as they are served: in the visitor's language, with our scripts and colours before Gradio's own.

Gradio's `head` is added by its script when the page is already being built: what it sent until then went past ours, so
that a page without a further request never noticed that its server was away.
"""

import re
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webui.languages import active
from webui.message_files import without_marks

_HEAD: Final = b"<head>"
_MANIFEST: Final = b'<link rel="manifest" href="/manifest.json" />'  #: there is none
_IS_GRADIOS: Final = b"window.gradio_config"  #: our own pages have their whole head and say their language
_HTML_LANGUAGE: Final = re.compile(rb'(<html\s+lang=")en"')


class PageHead:
    """ASGI middleware around Gradio that adds `head` to each of its pages, and puts texts for marks into them and into
    their configuration."""

    def __init__(self, app: ASGIApp, head: str) -> None:
        self._app = app
        self._head = head.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; the body of a page, or of JSON, is held back until it is whole."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def whole(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _has_words(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body"):
                    served = self._served(body)
                    MutableHeaders(scope=start)["Content-Length"] = str(len(served))
                    await send(start)
                    await send({"type": "http.response.body", "body": served})

        await self._app(scope, receive, whole)

    def _served(self, body: bytes) -> bytes:
        language = active()
        if _IS_GRADIOS in body:
            body = body.replace(_HEAD, _HEAD + self._head, 1).replace(_MANIFEST, b"", 1)
            body = _HTML_LANGUAGE.sub(rb'\g<1>%s"' % language.encode(), body, count=1)
        return without_marks(body, language)


def _has_words(start: Message) -> bool:
    return start["status"] == 200 and _content_type(start).startswith(("text/html", "application/json"))


def _content_type(start: Message) -> str:
    return Headers(raw=start["headers"]).get("content-type", "")
