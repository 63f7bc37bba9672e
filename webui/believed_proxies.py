"""What trusted proxies say of a visitor: the address, the scheme, and the name of one who has signed in.

It stands outside of everything else, because the peer of the connection is known only there.
"""

from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from webui.visitors import SIGNED_IN
from wire.proxies import USER_HEADERS, forwarded_user


class BelievedProxies:
    """ASGI middleware. `trusted`: addresses and networks of proxies, separated by commas."""

    def __init__(self, app: ASGIApp, trusted: str) -> None:
        inside: Any = app
        self._forwarded = ProxyHeadersMiddleware(inside, trusted_hosts=trusted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note in the scope what a trusted proxy says."""
        if scope["type"] == "http" and scope.get("client") and scope["client"][0] in self._forwarded.trusted_hosts:
            headers = Headers(scope=scope)
            scope[SIGNED_IN] = forwarded_user(value for name in USER_HEADERS for value in headers.getlist(name))
        outside: Any = (scope, receive, send)
        await self._forwarded(*outside)
