"""A service under a path prefix of its public address, such as https://lab.example/arena.

A proxy may take the prefix off a path or leave it there. Both are understood, so probes and other services need not
know the prefix. Everything inside sees and writes paths without it: the path of a redirect and of a cookie gets it
here. Links inside an answer are written by the service that makes the answer.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import AfterValidator
from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ROOT_PATH_HELP = (
    "Path prefix of the public address, such as `/arena`, where a proxy serves the service under one. The proxy may "
    "take it off or leave it there. Empty: the service has the whole host name"
)

_PREFIX = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._~-]{0,63}){1,8}")
_COOKIE_PATH = re.compile(r"(;\s*path=)/(?=;|$)", re.IGNORECASE)


def _checked(value: str) -> str:
    stripped = value.strip().rstrip("/")
    if not stripped:
        return ""
    if _PREFIX.fullmatch(stripped) is None:
        raise ValueError(f"{value!r} is not a path prefix such as /arena")
    return stripped


#: The type of a setting that is a path prefix: "", or begins with a slash and does not end with one.
RootPath = Annotated[str, AfterValidator(_checked)]


def paths_of(routes: Iterable[Any]) -> Iterator[str]:
    """The paths of an app's routes, those of mounted apps and included routers among them."""
    for route in routes:
        inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", None)
        if inner:
            yield from paths_of(inner)
        elif path := getattr(route, "path", ""):
            yield path


def own_path_under(prefix: str, paths: Iterable[str]) -> str | None:
    """The first of a service's own paths (`{name}` stands for any segment) that `prefix` is a beginning of: after a
    proxy has taken the prefix off, such a path would lose its own beginning, too. None if there is no such path."""
    wanted = prefix.split("/")[1:]
    for path in paths:
        found = path.split("/")[1:]
        pairs = zip(wanted, found, strict=False)
        if len(found) >= len(wanted) and all(want == have or have.startswith("{") for want, have in pairs):
            return path
    return None


class PathPrefix:
    """ASGI middleware, outside of everything that reads paths. `prefix` is a RootPath and not empty."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the prefix off the path, and put it into the head of the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if path == self._prefix:  # relative addresses in a page need the slash
            query = scope["query_string"].decode("latin-1")
            target = f"{self._prefix}/" + (f"?{query}" if query else "")
            await RedirectResponse(target, 308)(scope, receive, send)
            return
        if path.startswith(f"{self._prefix}/"):
            raw_path = (scope.get("raw_path") or b"").removeprefix(self._prefix.encode())
            scope = {**scope, "path": path.removeprefix(self._prefix), "raw_path": raw_path}

        async def outside(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._prefix_head(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, outside)

    def _prefix_head(self, headers: MutableHeaders) -> None:
        location = headers.get("location", "")
        is_own = location.startswith("/") and not location.startswith("//")
        if is_own and location != self._prefix and not location.startswith(f"{self._prefix}/"):
            headers["location"] = self._prefix + location
        cookies = headers.getlist("set-cookie")
        if cookies:
            del headers["set-cookie"]
            for cookie in cookies:
                headers.append("set-cookie", _COOKIE_PATH.sub(rf"\g<1>{self._prefix}", cookie))
