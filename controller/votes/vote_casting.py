"""Casting a vote: one Lua script accepts and records it; this module makes the record and the reply.

The reply is sent after these fsyncs: the store's, because Redis with `appendfsync always` answers after it; those of
its replicas, where a vote needs them; and the journal's, where this controller keeps one. A vote without a reply is in
an unknown state, not failed: the same vote sent again gets the same reply.
"""

import logging
import time
from collections.abc import Sequence

from controller.access.identity import Visitor
from controller.battles.battle_record import Battle, StoredAnswer, StoredTurn
from controller.battles.battle_store import BattleStore, closed, not_found, stale
from controller.battles.trails import Trails
from controller.battles.voters import Voter, Voters
from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store, unavailable
from controller.votes.categories import categories_of
from controller.votes.journal.follower import VoteJournal
from controller.votes.languages import language_of
from controller.votes.rated import ReadingPace, known_flags
from controller.votes.style_features import style_counts
from controller.votes.vote_log import stored
from service_kit.logs import log_event, short
from wire.battles import SIDES, CastVote, Side, VoteReply
from wire.entry_ids import LOG_START
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId
from wire.votes import StyleCounts, VotedSide, VoteRecord

MAX_REASON_CHARS = 64
_TRIES = 4  #: attempts; again if a turn has begun since the battle was read, or the log was or must be restored

_logger = logging.getLogger(__name__)


class VoteCasting:
    """Records votes. `voted_battle_ttl_s`: how long a voted battle is kept, 0 for ever (or until it is archived).
    `journal`: what must hold a vote before it is acknowledged, besides the store. `pace`: how soon a vote may follow
    its answers and be rated."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        battles: BattleStore,
        voters: Voters,
        metrics: Metrics,
        trails: Trails,
        journal: VoteJournal | None,
        *,
        voted_battle_ttl_s: float,
        pace: ReadingPace,
    ) -> None:
        self._store = store
        self._keys = keys
        self._battles = battles
        self._voters = voters
        self._metrics = metrics
        self._trails = trails
        self._journal = journal
        self._voted_ttl_ms = round(voted_battle_ttl_s * 1000)
        self._pace = pace

    async def cast(self, battle_id: BattleId, vote: CastVote, visitor: Visitor) -> VoteReply:
        """As `_cast`; the battle's trail has the vote, or why it was refused."""
        started = time.monotonic()
        try:
            reply = await self._cast(battle_id, vote, visitor)
        except ApiError as error:
            self._trails.note(battle_id, "vote_refused", reason=error.code.value, ms=_ms_since(started))
            raise
        self._trails.note(battle_id, "voted", reason=",".join(reply.flags) or None, ms=_ms_since(started))
        return reply

    async def _cast(self, battle_id: BattleId, vote: CastVote, visitor: Visitor) -> VoteReply:
        """Record a vote of `visitor`, or return the one that is already recorded.

        Raises ApiError with the reason when nothing was recorded, STORE_UNAVAILABLE when that is unknown.
        """
        if any(len(reason) > MAX_REASON_CHARS for reason in vote.reasons):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"A reason has at most {MAX_REASON_CHARS} characters.", param="reasons"
            )
        started = time.monotonic()
        for _ in range(_TRIES):
            battle = await self._battles.read(battle_id)
            voter = self._voters.voter_of(battle, visitor)
            if voter is None:
                self._metrics.votes.labels("rejected").inc()
                raise _refusal("stranger")
            if battle.vote_id is None and vote.number not in (None, len(battle.turns)):
                self._metrics.votes.labels("rejected").inc()
                raise stale(battle)
            record = _record(battle, vote, voter, self._pace)
            num_seen, last_seen = self._journal.seen if self._journal else (0, LOG_START)
            answer = await self._store.run_replicated(
                "cast_vote",
                self._keys.fence,
                [self._keys.battle(battle_id), self._keys.votes, self._keys.logged_battles],
                battle.owner.voter,
                vote.outcome,
                battle.run,
                stored(record),
                "1" if record.is_rated else "0",
                self._voted_ttl_ms,
                battle_id,
                battle.owner.day,
                num_seen,
                last_seen,
                ",".join(record.flags),
            )
            self._metrics.votes.labels(_RESULTS.get(answer[0], "rejected")).inc()
            if answer[0] in ("ok", "same"):
                if self._journal is not None and not await self._journal.confirm(answer[1]):
                    continue  # the log was replaced meanwhile: the battle may have an older vote
                self._metrics.vote_commit.observe(time.monotonic() - started)
                log_event(_logger, "vote_recorded", battle=short(battle_id), vote=answer[1], result=answer[0])
                return VoteReply(
                    vote_id=answer[1],
                    battle_id=battle_id,
                    outcome=vote.outcome,
                    models={side: battle.sides[side].model for side in SIDES},
                    rated=answer[2] == "1",
                    flags=tuple(flag for flag in answer[3].split(",") if flag),
                )
            if answer[0] == "behind" and self._journal is not None:
                await self._journal.catch_up()  # the battle may have a vote that the log has lost
            elif answer[0] != "changed":
                raise _refusal(answer[0])
        raise unavailable()


def _ms_since(started: float) -> float:
    return round(1000 * (time.monotonic() - started), 1)


_RESULTS = {"ok": "new", "same": "dup", "conflict": "conflict"}


def _refusal(reason: str) -> ApiError:
    match reason:
        case "missing":
            return not_found()
        case "stranger":
            return ApiError(ErrorCode.NOT_YOUR_BATTLE, "Only the visitor who began this battle may vote on it.")
        case "conflict":
            return ApiError(ErrorCode.BATTLE_ALREADY_VOTED, "Another vote was recorded for this battle.")
        case "unfinished":
            return ApiError(ErrorCode.BATTLE_NOT_FINISHED, "Both models must have answered before the vote.")
        case _:
            return closed(reason)


def _record(battle: Battle, vote: CastVote, voter: Voter, pace: ReadingPace) -> VoteRecord:
    return VoteRecord(
        vote_id="",
        battle_id=battle.battle_id,
        time=0,
        mode=battle.mode,
        outcome=vote.outcome,
        a=_voted_side(battle, "a"),
        b=_voted_side(battle, "b"),
        probability=battle.probability,
        turns=len(battle.answered_turns),
        reasons=vote.reasons,
        comment=vote.comment,
        voter=voter.pseudonym,
        identity=voter.kind,
        network=battle.owner.network,
        cohort=battle.owner.cohort,
        prompt=battle.prompt_key,
        consent=vote.consent,
        language=language_of(battle.answered_turns[0].content) if battle.answered_turns else None,
        categories=_categories(battle.answered_turns),
        flags=known_flags(battle, pace),
        read_ms=battle.since_answers_ms,
    )


def _categories(turns: Sequence[StoredTurn]) -> tuple[str, ...]:
    answers = [turns[-1].answer(side).text for side in SIDES] if turns else []
    return categories_of([turn.content for turn in turns], answers)


def _voted_side(battle: Battle, side: Side) -> VotedSide:
    answers = [turn.answer(side) for turn in battle.answered_turns]
    last = answers[-1] if answers else None
    return VotedSide(
        model=battle.sides[side].model,
        revision=battle.sides[side].revision,
        style=_total_style(battle.answered_turns, side),
        prompt_tokens=sum(answer.usage.prompt_tokens for answer in answers if answer.usage),
        completion_tokens=sum(answer.usage.completion_tokens for answer in answers if answer.usage),
        finish_reason=last.finish_reason if last else None,
        first_token_ms=last.first_token_ms if last else None,
        total_ms=last.total_ms if last else None,
    )


def _num_tokens(answer: StoredAnswer) -> int:
    """Tokens of the text, without thoughts. A stopped answer has no count of tokens, and some servers do not count
    thoughts apart: these are taken as bytes / 4."""
    usage = answer.usage
    if usage is None or (answer.thoughts and not usage.completion_tokens_details.reasoning_tokens):
        return len(answer.text.encode()) // 4
    return usage.completion_tokens - usage.completion_tokens_details.reasoning_tokens


def _total_style(turns: Sequence[StoredTurn], side: Side) -> StyleCounts:
    """Style of all answers of a side together."""
    counts = []
    for turn in turns:
        answer = turn.answer(side)
        counts.append(style_counts(answer.text, _num_tokens(answer)))
    return StyleCounts(
        tokens=sum(count.tokens for count in counts),
        headers=sum(count.headers for count in counts),
        lists=sum(count.lists for count in counts),
        bold=sum(count.bold for count in counts),
    )
