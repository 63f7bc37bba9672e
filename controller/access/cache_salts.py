"""Salts of the prefix cache: whose prompts may share cached pages at a worker.

A request that finds pages of another visitor's prompt is answered sooner and reports `cached_tokens`, which would tell
whether that prompt was sent before, and which models are in a battle. So every request carries a salt, a hash under a
secret of the arena; no part of a request's body goes into it.
"""

import hashlib
import hmac

from controller.access.addresses import ClientAddress

_SALT_CHARS = 32


class CacheSalts:
    """Makes salts under one secret, which all controllers of an arena share."""

    def __init__(self, key: str) -> None:
        self._key = _digest(key.encode(), "cache salts").encode()

    def of_battle(self, battle_id: str, voter: str) -> str:
        """The salt of one battle of one voter: a later turn finds the pages of the turns before, at whichever
        controller it runs; two battles share nothing."""
        return self._salt("battle", battle_id, voter)

    def of_caller(self, authorization: str | None, client: ClientAddress) -> str:
        """The salt of requests to /v1 with this credential from this address. Both count: the web UI sends one API key
        for all its visitors, and clients of an arena without API keys send any."""
        return self._salt("caller", authorization or "", client.identity)

    def _salt(self, *parts: str) -> str:
        return _digest(self._key, "\n".join(parts))[:_SALT_CHARS]


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
