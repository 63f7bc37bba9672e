"""The trail of each conversation: what happened to it, for the administrator who asks why.

Noting a step costs an addition in memory; background work writes what was noted. Steps of the last second are lost with
a controller that is killed; the one that takes its turns over notes that. Runs on the event loop.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.store.keys import TRAIL_TTL_MS, Keys
from controller.store.store import Store
from service_kit.request_context import current_request_id
from wire.errors import ApiError
from wire.ids import BattleId
from wire.trails import Step, TrailEntry

FLUSH_S: Final = 1.0
MAX_ENTRIES: Final = 200  #: of one conversation; the newest are kept
_MAX_UNSAVED: Final = 10_000  #: entries in memory while the store is away; newer ones are dropped
_AT_ONCE: Final = 100  #: conversations that one script writes


class Trails:
    """Owns the keys `trail`."""

    def __init__(
        self, store: Store, keys: Keys, listener: Callable[[BattleId, TrailEntry], None] | None = None
    ) -> None:
        """listener: gets every entry that is noted, when it is noted."""
        self._listener = listener
        self._store = store
        self._keys = keys
        self._controller = f"{socket.gethostname()}-{os.getpid()}"
        self._unsaved: dict[BattleId, list[str]] = {}
        self._num_unsaved = 0
        self._writing = asyncio.Lock()

    def note(self, conversation: BattleId, step: Step, **fields: Any) -> None:
        """Remember a step. `fields`: those of TrailEntry, none of them text that a visitor or a model wrote."""
        fields.setdefault("request_id", current_request_id())
        entry = TrailEntry(time=round(time.time(), 4), controller=self._controller, step=step, **fields)
        if self._listener is not None:
            self._listener(conversation, entry)
        if self._num_unsaved >= _MAX_UNSAVED:
            return
        self._unsaved.setdefault(conversation, []).append(entry.model_dump_json(exclude_none=True))
        self._num_unsaved += 1

    async def flush_round(self) -> None:
        """Write what was noted. While the store is away it is kept."""
        async with self._writing:
            while self._unsaved:
                part = dict(list(self._unsaved.items())[:_AT_ONCE])
                sizes = {conversation: len(entries) for conversation, entries in part.items()}
                args: list[str | int] = [TRAIL_TTL_MS, MAX_ENTRIES]
                for entries in part.values():
                    args += [len(entries), *entries]
                keys = [self._keys.trail(conversation) for conversation in part]
                try:
                    await self._store.run("add_trails", keys, *args)
                except ApiError:
                    return
                self._forget(sizes)

    def _forget(self, written: Mapping[BattleId, int]) -> None:
        """Drop the first entries of each conversation; others may have been noted meanwhile."""
        for conversation, number in written.items():
            self._num_unsaved -= number
            left = self._unsaved[conversation][number:]
            if left:
                self._unsaved[conversation] = left
            else:
                del self._unsaved[conversation]

    async def read(self, conversation: BattleId) -> tuple[TrailEntry, ...]:
        """All steps that are kept, oldest first, whichever controller noted them. Raises ApiError STORE_UNAVAILABLE."""
        await self.flush_round()
        lines = await self._store.run("read_trail", [self._keys.trail(conversation)])
        entries = [TrailEntry.model_validate_json(line) for line in lines]
        return tuple(sorted(entries, key=lambda entry: entry.time))
