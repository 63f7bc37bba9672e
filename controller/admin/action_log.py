"""The log of what administrators do: who, when, what and why. It is only appended to.

An action that changes what ArenaState holds is logged in the same step; any other one is logged before it is done, so
that nothing is done without an entry.
"""

import json
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from controller.access.addresses import Addresses
from controller.store.keys import Keys
from controller.store.store import Store, StreamEntry
from wire.admin import Action, ActionName
from wire.entry_ids import LOG_START, EntryId
from wire.proxies import USER_HEADERS, forwarded_user

TOKEN_HOLDER = "admin token"  #: name of an administrator without a name from a proxy


@dataclass(frozen=True)
class Actor:
    """Who acts: the user named by a trusted proxy, or the holder of the admin token."""

    name: str
    address: str


def actor_of(request: Request, addresses: Addresses) -> Actor:
    """Who sends this request, which the admin's router has let in."""
    values = [value for name in USER_HEADERS for value in request.headers.getlist(name)]
    user = forwarded_user(values) if addresses.is_from_proxy(request) else None
    return Actor(user or TOKEN_HOLDER, addresses.of(request).identity)


class ActionLog:
    """Owns the key `actions`. Every method raises ApiError STORE_UNAVAILABLE."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def append(
        self,
        actor: Actor,
        action: ActionName,
        subject: str,
        values: dict[str, Any] | None = None,
        reason: str | None = None,
        *,
        sets: tuple[str, str] | None = None,
    ) -> str:
        """Log an action, and in the same step set the field of the admin state that `sets` names to its value ("":
        remove it). Returns the id of the entry."""
        entry = {
            "by": actor.name,
            "address": actor.address,
            "action": action,
            "subject": subject[:500],
            "values": values or {},
            "reason": reason or "",
        }
        keys = [self._keys.admin_state, self._keys.actions]
        return str(await self._store.run("set_admin_state", keys, *(sets or ("", "")), json.dumps(entry)))

    async def newest(self, before: EntryId | None, count: int) -> list[Action]:
        """The last `count` actions before the one with the id `before`, newest first."""
        entries = await self._store.newest_in_stream(self._keys.actions, before, count=count)
        return [_action(entry) for entry in entries]

    async def read(self, after: EntryId = LOG_START, count: int = 500) -> list[Action]:
        """The next `count` actions after the id `after`, oldest first."""
        return [_action(entry) for entry in await self._store.range_stream(self._keys.actions, after, count=count)]


def _action(entry: StreamEntry) -> Action:
    entry_id, fields = entry
    return Action(id=entry_id, time=int(entry_id.partition("-")[0]) / 1000, **json.loads(fields["action"]))
