"""Pseudonyms of voters and keys of prompts: hashes under a secret, so that no address and no text is stored with a
vote.

The pseudonym's key changes every day. A battle remembers the day it began on, so that its vote is recognised after
midnight.
"""

import hashlib
import hmac
import re
import time

_PSEUDONYM_CHARS = 24


class Voters:
    def __init__(self, key: str) -> None:
        self._key = key.encode()

    @classmethod
    def from_settings(cls, voter_key: str, admin_token: str) -> "Voters":
        """Without a key of its own, one that all controllers of the arena derive alike."""
        return cls(voter_key or _digest(admin_token.encode(), "voter key"))

    def today(self) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime())

    def pseudonym(self, identity: str, day: str) -> str:
        """`identity` is an address, or the /64 of one."""
        return _digest(_digest(self._key, f"day {day}").encode(), identity)[:_PSEUDONYM_CHARS]

    def prompt_key(self, prompt: str) -> str:
        """Equal for prompts that differ in case and blanks only."""
        return _digest(self._key, "prompt " + re.sub(r"\s+", " ", prompt).strip().casefold())[:_PSEUDONYM_CHARS]


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
