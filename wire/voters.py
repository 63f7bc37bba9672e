"""The cookie by which an arena knows a voter again: its name, its text and its signature.

Controllers and web UIs make and check cookies under one key, derived from the proxy token, so that each accepts those
of the others. A cookie holds a random id and the time when it was made, nothing about the visitor.
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from typing import Literal

#: The web UI sends in it the cookie that it gives to a browser with the answer to the same request: the browser has it
#: from its next request on, and the battle that begins now shall be its own.
NEW_COOKIE_HEADER = "X-Agon-New-Voter"
MAX_AGE_S = 400 * 86_400  #: browsers keep no cookie for longer
_RENEW_AFTER_S = 30 * 86_400
UNCHECKED_FOR_S = 3600  #: how long a plain cookie opens an arena whose captcha did not answer
_TEXT = re.compile(r"(c|i|p)\.([A-Za-z0-9_-]{22})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")

CookieKind = Literal["c", "i", "p"]  #: for a visitor, for an invitation, for a visitor who passed a captcha
_KINDS: dict[str, CookieKind] = {"c": "c", "i": "i", "p": "p"}


@dataclass(frozen=True)
class VoterCookie:
    """A cookie whose signature is right."""

    kind: CookieKind
    voter_id: str  #: 22 characters, random
    made_at: int  #: Unix time

    @property
    def opens(self) -> bool:
        """Whether its visitor needs no captcha now."""
        return self.kind != "c" or time.time() - self.made_at < UNCHECKED_FOR_S

    @property
    def is_old(self) -> bool:
        """Whether a browser should get it anew, before it forgets it."""
        return time.time() - self.made_at > _RENEW_AFTER_S


class VoterCookies:
    """Makes and reads cookies under one secret of the arena. The secret also makes the cookie's name: browsers send
    cookies to all ports of a host, and two arenas on one machine must not take each other's away."""

    def __init__(self, secret: str) -> None:
        self._key = hmac.digest(secret.encode(), b"voter cookies", "sha256")
        self.name = "agon_voter_" + hmac.new(self._key, b"name", hashlib.sha256).hexdigest()[:8]

    def new(self, kind: CookieKind = "c") -> str:
        """The text of a cookie for a new visitor."""
        return self.text(kind, secrets.token_urlsafe(16))

    def text(self, kind: CookieKind, voter_id: str) -> str:
        """The text of a cookie, made now."""
        signed = f"{kind}.{voter_id}.{int(time.time())}"
        return f"{signed}.{self._signature(signed)}"

    def read(self, text: str | None) -> VoterCookie | None:
        """The cookie of this text; None where there is none, or none of this arena."""
        found = _TEXT.fullmatch(text or "")
        if found is None:
            return None
        signed, _, signature = found[0].rpartition(".")
        if not hmac.compare_digest(signature, self._signature(signed)):
            return None
        return VoterCookie(_KINDS[found[1]], found[2], int(found[3]))

    def set_cookie(self, text: str, *, is_secure: bool) -> str:
        """The value of Set-Cookie: hidden from scripts, and sent by pages of other sites only where a link is followed.
        `is_secure`: the browser came over TLS, and shall send it over nothing else."""
        secure = "; Secure" if is_secure else ""
        return f"{self.name}={text}; Max-Age={MAX_AGE_S}; Path=/; HttpOnly; SameSite=Lax{secure}"

    def _signature(self, signed: str) -> str:
        digest = hmac.digest(self._key, signed.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
