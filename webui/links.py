"""Links from one page of the web UI to another, with the path prefix under which visitors reach it.

The prefix is active in a context, as the language is: of a request, of an event of a page (quiet_blocks.py), and while
the pages are built. Routes, redirects and cookies are written without it (service_kit/path_prefix.py).
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

_KEY: Final = "agon.path_prefix"
_prefix: ContextVar[str] = ContextVar("path_prefix", default="")


def link_to(path: str) -> str:
    """The address of the page or file at `path`, for the visitor's browser."""
    return _prefix.get() + path


@contextmanager
def under(prefix: str) -> Generator[None, None, None]:
    """Links that are made inside begin with this prefix ("" for none)."""
    before = _prefix.set(prefix)
    try:
        yield
    finally:
        _prefix.reset(before)


def prefix_in(scope: Any) -> str:
    """The prefix of the request that has this scope; "" for one that came another way."""
    prefix: str = scope.get(_KEY, "")
    return prefix


class Links:
    """ASGI middleware: links in an answer begin with `prefix`."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note the prefix in the scope, for events of pages, and answer with it."""
        scope[_KEY] = self._prefix
        with under(self._prefix):
            await self._app(scope, receive, send)
