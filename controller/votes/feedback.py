"""Feedback on a vote: one Lua script appends it to the vote log; this module makes the record and the reply.

Only the voter of a battle adds to its vote, and only after it. The vote itself is not touched. As with a vote, the
reply is sent when store and journal hold the addition, and the same one sent again gets the same reply.
"""

import logging
import secrets

from controller.access.identity import Visitor
from controller.battles.battle_record import Battle
from controller.battles.battle_store import BattleStore, not_found
from controller.battles.voters import Voter, Voters
from controller.store.keys import Keys
from controller.store.store import Store, unavailable
from controller.votes.journal.follower import VoteJournal
from controller.votes.vote_log import stored
from service_kit.logs import log_event, short
from wire.errors import ApiError, ErrorCode
from wire.feedback import MAX_ADDITIONS, FeedbackRecord, FeedbackReply, GiveFeedback
from wire.ids import BattleId
from wire.votes import FEEDBACK_PREFIX

_TRIES = 4  #: attempts; again if the log was restored meanwhile

_logger = logging.getLogger(__name__)


class Feedback:
    """Appends and reads additions. `journal`: what must hold one before it is acknowledged, besides the store. Methods
    raise ApiError, also STORE_UNAVAILABLE: then an addition may be sent again."""

    def __init__(
        self, store: Store, keys: Keys, battles: BattleStore, voters: Voters, journal: VoteJournal | None
    ) -> None:
        self._store = store
        self._keys = keys
        self._battles = battles
        self._voters = voters
        self._journal = journal

    async def read(self, battle_id: BattleId, visitor: Visitor) -> FeedbackReply:
        """What `visitor` has added to their vote. Raises ApiError BATTLE_NOT_FOUND, NOT_YOUR_BATTLE."""
        battle, _ = await self._own(battle_id, visitor)
        return _reply(battle.feedback or GiveFeedback(), battle.num_feedback)

    async def add(self, battle_id: BattleId, feedback: GiveFeedback, visitor: Visitor) -> FeedbackReply:
        """Append an addition of `visitor`. Raises ApiError BATTLE_NOT_FOUND, NOT_YOUR_BATTLE, BATTLE_NOT_FINISHED
        before the vote, FEEDBACK_FULL."""
        for _ in range(_TRIES):
            battle, voter = await self._own(battle_id, visitor)
            if feedback.is_empty and battle.feedback is None:
                return _reply(feedback, battle.num_feedback)  # there is nothing to take back
            record = FeedbackRecord(
                feedback_id="",
                key=FEEDBACK_PREFIX + secrets.token_hex(16),
                time=0,
                battle_id=battle_id,
                voter=voter.pseudonym,
                reasons=feedback.reasons,
                comment=feedback.comment,
                thumbs=feedback.thumbs,
            )
            answer = await self._store.run(
                "add_feedback",
                [self._keys.battle(battle_id), self._keys.votes, self._keys.logged_battles],
                battle.owner.voter,
                MAX_ADDITIONS,
                feedback.model_dump_json(),
                record.key,
                stored(record),
            )
            if answer[0] not in ("ok", "same"):
                raise _refusal(answer[0])
            if self._journal is None or await self._journal.confirm(answer[1]):
                log_event(_logger, "feedback_recorded", battle=short(battle_id), entry=answer[1], result=answer[0])
                return _reply(feedback, int(answer[2]))
        raise unavailable()

    async def _own(self, battle_id: BattleId, visitor: Visitor) -> tuple[Battle, Voter]:
        battle = await self._battles.read(battle_id)
        voter = self._voters.voter_of(battle, visitor)
        if voter is None:
            raise _refusal("stranger")
        return battle, voter


def _reply(feedback: GiveFeedback, num_additions: int) -> FeedbackReply:
    return FeedbackReply(feedback=feedback, num_left=max(0, MAX_ADDITIONS - num_additions))


def _refusal(reason: str) -> ApiError:
    match reason:
        case "missing":
            return not_found()
        case "stranger":
            return ApiError(ErrorCode.NOT_YOUR_BATTLE, "Only the visitor who began this battle may add to its vote.")
        case "unvoted":
            return ApiError(ErrorCode.BATTLE_NOT_FINISHED, "Feedback is added to a vote; this battle has none yet.")
        case _:
            return ApiError(ErrorCode.FEEDBACK_FULL, f"The feedback on a vote may be changed {MAX_ADDITIONS} times.")
