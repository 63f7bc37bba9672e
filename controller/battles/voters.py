"""Pseudonyms of voters and keys of prompts: hashes under a secret, so that a vote stores no address and no text.

The pseudonym of a cookie stays the same. That of an address is made under a key that changes every day; a battle stores
the day on which it began, so that its voter is recognised after midnight.
"""

import hashlib
import hmac
import re
import time
from dataclasses import dataclass

from controller.access.identity import Visitor
from controller.battles.battle_record import Battle, Owner
from wire.ids import Pseudonym
from wire.votes import IdentityKind

_PSEUDONYM_CHARS = 24


@dataclass(frozen=True)
class Voter:
    """The voter of one vote, as its record names it."""

    pseudonym: str
    kind: IdentityKind


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

    def lasting(self, kind: IdentityKind, name: str) -> str:
        """24 hexadecimal digits for a voter who is known by more than an address, the same on every day."""
        return _digest(self._key, f"{kind} {name}")[:_PSEUDONYM_CHARS]

    def owner(self, visitor: Visitor) -> Owner:
        """What a battle that `visitor` begins now stores of them."""
        day = self.today()
        address = self.pseudonym(visitor.client.identity, day)
        return Owner(
            voter=self._own(visitor, day),
            day=day,
            kind=visitor.kind,
            address=address,
            offered=None if visitor.offered is None else self.lasting("cookie", visitor.offered),
            network=self.pseudonym(f"network {visitor.client.network}", day),
            cohort=visitor.cohort,
        )

    def voter_of(self, battle: Battle, visitor: Visitor) -> Voter | None:
        """Who votes if `visitor` votes on `battle`; None if the battle is not theirs.

        The owner of a battle is the cookie that began it, from whatever address it comes. The address that began it may
        vote, too: a client that keeps no cookies, or a browser that has lost its own, keeps its battle. A battle of an
        invited voter is that voter's alone.
        """
        owner = battle.owner
        own = self._own(visitor, owner.day)
        if own == owner.voter:
            return Voter(owner.voter, owner.kind)
        if visitor.kind == "cookie" and own == owner.offered:
            return Voter(own, "cookie")  # the cookie that came with the answer to the battle's first request
        address_counts = visitor.may_use_address and owner.kind in ("address", "cookie")
        if address_counts and self.pseudonym(visitor.client.identity, owner.day) == owner.address:
            return Voter(owner.voter, owner.kind)
        return None

    def history_of(self, visitor: Visitor) -> Pseudonym | None:
        """Whose battles a visitor may list; None for one who is known by an address alone, which others may have."""
        if visitor.kind != "address":
            return Pseudonym(self.lasting(visitor.kind, visitor.name))
        return None if visitor.offered is None else Pseudonym(self.lasting("cookie", visitor.offered))

    def _own(self, visitor: Visitor, day: str) -> str:
        if visitor.kind == "address":
            return self.pseudonym(visitor.name, day)
        return self.lasting(visitor.kind, visitor.name)

    def prompt_key(self, prompt: str) -> str:
        """24 hexadecimal digits, equal for prompts that differ only in case and white space."""
        return _digest(self._key, "prompt " + re.sub(r"\s+", " ", prompt).strip().casefold())[:_PSEUDONYM_CHARS]


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
