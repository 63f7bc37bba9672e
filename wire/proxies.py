"""How the web UI shows a controller that it may speak for visitors.

The web UI sends the visitor's address in X-Forwarded-For, as every proxy does, and with it the proxy token in the
header below. Without the token a controller believes only the networks that its operator has named.
"""

from collections.abc import Iterable
from urllib.parse import quote

PROXY_TOKEN_HEADER = "X-Agon-Proxy-Token"
#: Headers in which a proxy that authenticates visitors names them: oauth2-proxy sends the first one to its upstream,
#: and the second one to nginx, which may pass it on.
USER_HEADERS = ("X-Forwarded-User", "X-Auth-Request-User")
_MAX_USER_CHARS = 256
_ASCII = "".join(map(chr, range(0x20, 0x7F)))


def forwarded_user(values: Iterable[str]) -> str | None:
    """The visitor's name, from all values of USER_HEADERS; bytes outside of ASCII are percent-encoded, as the web UI
    sends them on. None without a name, and where values differ: then a client has sent one of its own, which the proxy
    has not taken off."""
    names = {value.strip() for value in values}
    name = names.pop() if len(names) == 1 else ""
    return quote(name.encode("latin-1"), safe=_ASCII) if 0 < len(name) <= _MAX_USER_CHARS else None
