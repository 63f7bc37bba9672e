"""What trusted proxies say of a visitor: the address, the scheme, and the name of one who has signed in.

It stands outside of everything else, because the peer of the connection is known only there.
"""

import logging
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service_kit.logs import log_event
from webui.visitors import SIGNED_IN
from wire.proxies import PROXY_TOKEN_HEADER, USER_HEADERS, forwarded_user

_logger = logging.getLogger(__name__)


class BelievedProxies:
    """ASGI middleware. `trusted`: addresses and networks of proxies, separated by commas; "" for none, of which nothing
    is believed."""

    def __init__(self, app: ASGIApp, trusted: str) -> None:
        inside: Any = app
        self._forwarded = ProxyHeadersMiddleware(inside, trusted_hosts=trusted)
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note in the scope what a trusted proxy says."""
        if scope["type"] == "http" and scope.get("client"):
            headers = Headers(scope=scope)
            if scope["client"][0] in self._forwarded.trusted_hosts:
                scope[SIGNED_IN] = forwarded_user(value for name in USER_HEADERS for value in headers.getlist(name))
            elif "x-forwarded-for" in headers and PROXY_TOKEN_HEADER not in headers:  # another web UI shows its token
                self._warn()
        outside: Any = (scope, receive, send)
        await self._forwarded(*outside)

    def _warn(self) -> None:
        """Once: every visitor can send the header, and must not fill the log with it."""
        if not self._has_warned:
            self._has_warned = True
            hint = "all visitors of a proxy that is not named in AGON_WEBUI_TRUSTED_PROXIES count as one"
            log_event(_logger, "forwarded_address_ignored", logging.WARNING, hint=hint)
