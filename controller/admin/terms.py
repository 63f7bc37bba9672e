"""The terms gate: a visitor accepts the version in force before the first battle or chat, once per cookie."""

import json
from collections.abc import Callable
from typing import Final

from controller.access.identity import Visitor
from controller.admin.arena_state import ArenaState
from controller.store.keys import Keys
from controller.store.store import Store
from wire.errors import ApiError, ErrorCode
from wire.ids import Pseudonym
from wire.notices import TermsView
from wire.voters import MAX_AGE_S
from wire.votes import IdentityKind

_ADDRESS_TTL_S: Final = 86_400  #: an address may have another holder tomorrow


class Terms:
    """Owns the keys `accepted_terms`. `pseudonym` hashes how a voter is known and by which name. Methods raise ApiError
    STORE_UNAVAILABLE."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        state: ArenaState,
        pseudonym: Callable[[IdentityKind, str], str],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._keys = keys
        self._state = state
        self._pseudonym = pseudonym
        self._clock = clock

    @property
    def are_in_force(self) -> bool:
        """Whether the arena has terms."""
        return self._state.terms is not None

    async def view(self, visitor: Visitor) -> TermsView:
        """The terms in force, and whether this visitor has accepted them."""
        terms = self._state.terms
        if terms is None:
            return TermsView()
        return TermsView(version=terms.version, text=terms.text, is_accepted=await self._has_accepted(visitor))

    async def accept(self, visitor: Visitor, version: str) -> TermsView:
        """Record that the visitor accepts this version. Raises ApiError INVALID_REQUEST if it is not in force: then the
        visitor has read another text."""
        await self._state.refresh()
        terms = self._state.terms
        if terms is None or terms.version != version:
            raise ApiError(ErrorCode.INVALID_REQUEST, "These terms are not in force any more.", param="version")
        kind, name = _known_by(visitor)[0]
        record = json.dumps({"version": version, "time": round(self._clock(), 3)})
        ttl_s = _ADDRESS_TTL_S if kind == "address" else MAX_AGE_S
        with self._store.guard("accept_terms"):
            await self._store.redis.set(self._key(kind, name), record, ex=ttl_s)
        return TermsView(version=terms.version, text=terms.text, is_accepted=True)

    async def require(self, visitor: Visitor) -> None:
        """Raises ApiError TERMS_NOT_ACCEPTED unless there are no terms or the visitor has accepted them."""
        if self.are_in_force and not await self._has_accepted(visitor):
            raise ApiError(ErrorCode.TERMS_NOT_ACCEPTED, "Accept the terms of this arena first: GET /arena/terms.")

    async def _has_accepted(self, visitor: Visitor) -> bool:
        assert self._state.terms is not None
        keys = [self._key(kind, name) for kind, name in _known_by(visitor)]
        with self._store.guard("read_terms"):
            found = await self._store.redis.mget(keys)
        return any(text is not None and json.loads(text)["version"] == self._state.terms.version for text in found)

    def _key(self, kind: IdentityKind, name: str) -> str:
        return self._keys.accepted_terms(Pseudonym(self._pseudonym(kind, name)))


def _known_by(visitor: Visitor) -> list[tuple[IdentityKind, str]]:
    """What the visitor is known by, first the cookie that the browser gets with this answer."""
    offered: list[tuple[IdentityKind, str]] = [] if visitor.offered is None else [("cookie", visitor.offered)]
    return [*offered, (visitor.kind, visitor.name)]
