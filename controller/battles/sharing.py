"""A visitor's own battles: their list, and links that show single ones to others.

Only voted battles are shared, so a link never tells a model before the vote. A link is a key of its own, and the battle
is read through it each time: what is taken back is gone at once. A shared battle is kept longer than others.
"""

import secrets
import time

from controller.access.identity import Visitor
from controller.battles.battle_record import Battle, parse_battle
from controller.battles.battle_store import HISTORY_LENGTH, BattleStore, not_found
from controller.battles.voters import Voters
from controller.store.keys import Keys
from controller.store.store import Store
from wire.battles import SIDES, Side
from wire.errors import ApiError, ErrorCode
from wire.history import HistoryEntry, SharedBattle
from wire.ids import BattleId, ShareId

QUESTION_CHARS = 160  #: of the first message, in a list


class Sharing:
    """Owns the keys `shared` and reads the keys `history`. Every method raises ApiError, also STORE_UNAVAILABLE.

    `kept_s`: how long a voted battle is kept, 0: for ever; `shared_s`: a shared one."""

    def __init__(
        self, store: Store, keys: Keys, battles: BattleStore, voters: Voters, *, kept_s: float, shared_s: float
    ) -> None:
        self._store = store
        self._keys = keys
        self._battles = battles
        self._voters = voters
        self._kept_ms = round(kept_s * 1000)
        self._shared_ms = round(shared_s * 1000)

    async def history(self, visitor: Visitor) -> list[HistoryEntry]:
        """The visitor's battles that have a turn, newest first. Empty for one who is known by an address alone."""
        pseudonym = self._voters.history_of(visitor)
        if pseudonym is None:
            return []
        key = self._keys.history(pseudonym)
        now_ms, *rest = await self._store.run("read_history", [key], self._keys.battle_prefix, HISTORY_LENGTH)
        battles = [
            parse_battle(BattleId(battle_id), dict(zip(flat[::2], flat[1::2], strict=True)), int(now_ms))
            for battle_id, flat in zip(rest[::2], rest[1::2], strict=True)
        ]
        return [_entry(battle) for battle in battles if battle.turns]

    async def forget(self, battle_id: BattleId, visitor: Visitor) -> None:
        """Take a battle off the visitor's history, and its link back. One that is not there is no error."""
        pseudonym = self._voters.history_of(visitor)
        if pseudonym is None:
            return
        try:
            await self.unshare(battle_id, visitor)
        except ApiError as error:
            if error.code not in (ErrorCode.BATTLE_NOT_FOUND, ErrorCode.NOT_YOUR_BATTLE):
                raise
        with self._store.guard("forget"):
            await self._store.redis.zrem(self._keys.history(pseudonym), battle_id)

    async def share(self, battle_id: BattleId, visitor: Visitor) -> ShareId:
        """The link of a voted battle of the visitor, a new one if it has none. Raises ApiError BATTLE_NOT_FOUND,
        NOT_YOUR_BATTLE, BATTLE_NOT_FINISHED before the vote."""
        await self._own(battle_id, visitor)
        new = ShareId(secrets.token_urlsafe(16))
        keys = [self._keys.battle(battle_id), self._keys.shared(new)]
        found = await self._store.run("share_battle", keys, new, battle_id, self._shared_ms)
        if not found:
            raise ApiError(ErrorCode.BATTLE_NOT_FINISHED, "A battle can be shared once it has been voted on.")
        return ShareId(found)

    async def unshare(self, battle_id: BattleId, visitor: Visitor) -> None:
        """Take the link of a battle back. A battle without one is no error."""
        battle = await self._own(battle_id, visitor)
        if battle.share_id is not None:
            keys = [self._keys.battle(battle_id), self._keys.shared(battle.share_id)]
            await self._store.run("unshare_battle", keys, battle.share_id, self._kept_ms)

    async def shared(self, share_id: ShareId) -> SharedBattle:
        """What everybody with the link may read. Raises ApiError BATTLE_NOT_FOUND, also when it was taken back."""
        with self._store.guard("shared"):
            battle_id = BattleId.parse(await self._store.redis.get(self._keys.shared(share_id)))
        if battle_id is None:
            raise not_found()
        battle = await self._battles.read(battle_id)
        if battle.share_id != share_id or battle.outcome is None:
            raise not_found()
        return SharedBattle(
            mode=battle.mode,
            outcome=battle.outcome,
            models=_models(battle),
            turns=battle.view(max_turns=len(battle.turns)).turns,
            day=time.strftime("%Y-%m-%d", time.gmtime(battle.began_s)),
        )

    async def _own(self, battle_id: BattleId, visitor: Visitor) -> Battle:
        battle = await self._battles.read(battle_id)
        if self._voters.voter_of(battle, visitor) is None:
            raise ApiError(ErrorCode.NOT_YOUR_BATTLE, "Only the visitor who began this battle may share it.")
        return battle


def _models(battle: Battle) -> dict[Side, str]:
    return {side: battle.sides[side].model for side in SIDES}


def _entry(battle: Battle) -> HistoryEntry:
    question = " ".join(battle.turns[0].content.split())
    return HistoryEntry(
        id=battle.battle_id,
        began_s=battle.began_s,
        mode=battle.mode,
        state=battle.state,
        question=question if len(question) <= QUESTION_CHARS else question[: QUESTION_CHARS - 1] + "\u2026",
        num_turns=len(battle.turns),
        outcome=battle.outcome,
        models=_models(battle) if battle.names_are_known else None,
        share_id=battle.share_id,
    )
