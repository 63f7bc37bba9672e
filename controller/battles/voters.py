"""Pseudonyms of voters and keys of prompts: hashes under a secret, so that a vote stores no address and no text.

The key of pseudonyms changes every day. A battle stores the day on which it began, so that its voter is recognised
after midnight.
"""

import hashlib
import hmac
import re
import time

_PSEUDONYM_CHARS = 24


class Voters:
    """Hashes under one secret, which all controllers of an arena share."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    @classmethod
    def from_settings(cls, voter_key: str, admin_token: str) -> "Voters":
        """Without a voter key it is derived from the admin token, so that all controllers have the same one."""
        return cls(voter_key or _digest(admin_token.encode(), "voter key"))

    def today(self) -> str:
        """The day in UTC, as `pseudonym` takes it."""
        return time.strftime("%Y-%m-%d", time.gmtime())

    def pseudonym(self, identity: str, day: str) -> str:
        """24 hexadecimal digits for `identity`, an IPv4 address or the /64 of an IPv6 address, on `day`."""
        return _digest(_digest(self._key, f"day {day}").encode(), identity)[:_PSEUDONYM_CHARS]

    def prompt_key(self, prompt: str) -> str:
        """24 hexadecimal digits, equal for prompts that differ only in case and white space."""
        return _digest(self._key, "prompt " + re.sub(r"\s+", " ", prompt).strip().casefold())[:_PSEUDONYM_CHARS]


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
