"""Invitations of voters in the store: made, listed and revoked by the administrator, looked up for every use."""

import json
import secrets
from collections.abc import Awaitable
from typing import cast

from controller.store.keys import Keys
from controller.store.store import Store
from wire.errors import ApiError, ErrorCode
from wire.invitations import Invitation
from wire.voters import VoterCookies


class Invitations:
    """Owns the keys `invitations` and `invited`. A token is a cookie's text: the signature keeps it from being guessed,
    and the store holds nothing with which a vote could be cast. Every method raises ApiError STORE_UNAVAILABLE."""

    def __init__(self, store: Store, keys: Keys, cookies: VoterCookies) -> None:
        self._store = store
        self._keys = [keys.invitations, keys.invited]
        self._cookies = cookies

    async def invite(self, name: str, cohort: str | None) -> Invitation:
        """The invitation of this name: the one that holds already, with its own cohort, or a new one."""
        voter_id = secrets.token_urlsafe(16)
        known_id, text = await self._store.run("invite_voter", self._keys, voter_id, name, cohort or "")
        return self._invitation(known_id, text)

    async def revoke(self, name: str) -> Invitation:
        """End the invitation of this name; it holds for no request after this. Raises ApiError INVITATION_NOT_FOUND."""
        found = await self._store.run("revoke_voter", self._keys, name)
        if not found:
            raise not_invited()
        return self._invitation(*found)

    async def all(self) -> list[Invitation]:
        """Every invitation, oldest first, also the revoked ones."""
        with self._store.guard("list_invitations"):
            texts = await cast(Awaitable[dict[str, str]], self._store.redis.hgetall(self._keys[0]))
        found = [self._invitation(voter_id, text) for voter_id, text in texts.items()]
        return sorted(found, key=lambda invitation: (invitation.created, invitation.name))

    async def holding(self, voter_id: str) -> Invitation | None:
        """The invitation with this id; None where there is none or it was revoked."""
        with self._store.guard("read_invitation"):
            text = await cast(Awaitable[str | None], self._store.redis.hget(self._keys[0], voter_id))
        invitation = None if text is None else self._invitation(voter_id, text)
        return None if invitation is None or invitation.revoked is not None else invitation

    def _invitation(self, voter_id: str, text: str) -> Invitation:
        return Invitation(token=self._cookies.text("i", voter_id), **json.loads(text))


def not_invited() -> ApiError:
    """The error for an invitation that does not hold (404)."""
    return ApiError(ErrorCode.INVITATION_NOT_FOUND, "There is no such invitation, or it was revoked.")
