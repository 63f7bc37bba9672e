"""Chats in Redis: create, delete, and how many of one visitor are kept. Turns are those of TurnStore."""

from collections.abc import Mapping
from typing import Any

from controller.battles.battle_record import Battle, Owner
from controller.battles.battle_store import BegunTurn, TurnStore
from controller.store.keys import Keys
from controller.store.store import Store
from wire.errors import ApiError, ErrorCode
from wire.ids import ChatId, Pseudonym

ADDRESS_FACTOR = 10


class ChatStore(TurnStore):
    """Owns the keys `chat`, `chat_events`, `running_chats` and `chats_of`. Every method raises ApiError
    STORE_UNAVAILABLE.

    `ttl_s`: how long a chat is kept after its beginning or its last turn; `most`: chats of one visitor. Clients that
    keep no cookies count by their address, which many may share: ADDRESS_FACTOR times as many are kept of one."""

    def __init__(self, store: Store, keys: Keys, *, ttl_s: float, most: int, ownership_s: float) -> None:
        super().__init__(
            store, keys.chat_turns, ttl_s=ttl_s, kept_s=ttl_s, ownership_s=ownership_s, missing=chat_not_found
        )
        self._keys = keys
        self._most = most

    async def create(self, chat_id: ChatId, owner: Owner, fields: Mapping[str, str]) -> None:
        """Write a new chat, and delete the oldest ones of its visitor beyond the number that is kept. `fields` are
        those of its hash, without times."""
        keys = [self._keys.chat(chat_id), self._list_of(owner), self._keys.running_chats]
        pairs = (part for pair in fields.items() for part in pair)
        names = (self._turns.prefix, self._turns.events_suffix)
        most = self._most * ADDRESS_FACTOR if owner.kind == "address" else self._most
        await self._store.run("create_chat", keys, self._ttl_ms, chat_id, most, *names, *pairs)

    async def begin_turn(self, battle: Battle, *arguments: Any, **options: Any) -> BegunTurn:
        """As TurnStore.begin_turn; the list of the visitor's chats then lives as long as this chat."""
        with self._store.guard("keep_chats"):
            await self._store.redis.pexpire(self._list_of(battle.owner), self._ttl_ms)
        return await super().begin_turn(battle, *arguments, **options)

    async def delete(self, chat_id: ChatId, owner: Owner) -> None:
        """Delete a chat with everything that was said in it."""
        keys = [*self._turn_keys(chat_id), self._list_of(owner)]
        await self._store.run("delete_chat", keys, chat_id)

    def _list_of(self, owner: Owner) -> str:
        return self._keys.chats_of(Pseudonym(owner.voter))


def chat_not_found() -> ApiError:
    """The error for a chat id without a chat, and for another visitor's (404)."""
    return ApiError(ErrorCode.CHAT_NOT_FOUND, "There is no such chat, or it has been forgotten.")
