"""Votes over HTTP: cast one, read the log."""

import asyncio
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from controller.access.identity import Identities
from controller.access.rate_limits import RateLimiter
from controller.battles.battle_store import BattleStore
from controller.routes.path_ids import BATTLE_ID, BattleInPath
from controller.routes.replies import json_reply
from controller.votes.journal.transcripts import Conversations, TranscriptFiles, conversations_of, day_of
from controller.votes.vote_casting import VoteCasting
from controller.votes.vote_log import LogEntry, VoteLog
from service_kit.bodies import Bodies
from service_kit.route_docs import Answer, documented
from wire.battles import CastVote, VoteReply
from wire.entry_ids import LOG_START, EntryId
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId
from wire.log_records import LogRecord
from wire.votes import VoteRecord

NDJSON = "application/x-ndjson"


def add_vote_route(
    router: APIRouter, bodies: Bodies, identities: Identities, limits: RateLimiter, votes: VoteCasting
) -> None:
    """Add the route that casts a vote."""

    @router.post("/arena/battles/{battle_id}/vote")
    @documented(
        "Votes",
        "Vote on a battle",
        parameters=BATTLE_ID,
        request=CastVote,
        example={"outcome": "a"},
        answer=VoteReply,
        errors=(
            ErrorCode.NOT_YOUR_BATTLE,
            ErrorCode.VOTER_NOT_KNOWN,
            ErrorCode.BATTLE_NOT_FOUND,
            ErrorCode.BATTLE_NOT_FINISHED,
            ErrorCode.BATTLE_ALREADY_VOTED,
            ErrorCode.STALE_TURN,
            ErrorCode.BATTLE_ABORTED,
            ErrorCode.RATE_LIMITED,
            ErrorCode.STORE_UNAVAILABLE,
        ),
    )
    async def cast(request: Request, battle_id: BattleInPath) -> Response:
        """Records the vote and reveals both models. The answer leaves when the vote is on disk; the same vote sent
        again gets the same answer. The request must have the cookie that began the battle, or come from the
        address that did."""
        vote = await bodies.parse(request, CastVote)
        await limits.check(identities.client_of(request), "vote")
        visitor = await identities.of(request)
        return json_reply(await votes.cast(battle_id, vote, visitor))


def add_vote_export_route(
    router: APIRouter, log: VoteLog, battles: BattleStore, archive: TranscriptFiles | None
) -> None:
    """Add the export of the vote log. `archive`: the texts of battles that have left the store."""

    @router.get("/arena/votes")
    @documented(
        "Votes",
        "Export the vote log",
        parameters={
            "after": "a vote id: the log after this vote",
            "conversations": "join the texts of battles that are still in the store or archived by this controller",
        },
        answer=Answer(lines=LogRecord),
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def export(after: str = str(LOG_START), conversations: bool = False) -> Response:
        """One record per line, oldest first. Votes have no field `kind`; a judgement takes votes out of the ratings, or
        back in; feedback is what a voter has added to a vote, and a label what a model says of its kind: of several the
        last one counts."""
        first = await log.read(checked_entry_id(after, "after"))
        texts = _Texts(battles, archive) if conversations else None
        return StreamingResponse(_lines(log, first, texts), media_type=NDJSON)


async def _lines(log: VoteLog, entries: list[LogEntry], texts: "_Texts | None") -> AsyncGenerator[bytes, None]:
    while entries:
        for entry in entries:
            content = entry.content
            if texts is not None and isinstance(content, VoteRecord):
                content = content.model_copy(update={"conversations": await texts.of(content)})
            yield content.model_dump_json(exclude_none=True).encode() + b"\n"
        entries = await log.read(EntryId(entries[-1].vote_id))


class _Texts:
    """The conversations of one export: from the store, else from the archive, of which one day is kept in memory."""

    def __init__(self, battles: BattleStore, archive: TranscriptFiles | None) -> None:
        self._battles = battles
        self._archive = archive
        self._day = ""
        self._archived: dict[str, Conversations] = {}

    async def of(self, vote: VoteRecord) -> Conversations | None:
        """None if neither has the texts."""
        battle_id = BattleId.parse(vote.battle_id)  # an imported vote may have an id of another kind
        if battle_id is None:
            return None
        try:
            battle = await self._battles.read(battle_id)
            if battle.turns:
                return conversations_of(battle)
        except ApiError as error:
            if error.code is not ErrorCode.BATTLE_NOT_FOUND:
                raise
        if self._archive is None:
            return None
        if self._day != (day := day_of(vote.time)):
            self._day, self._archived = day, await asyncio.to_thread(self._archive.texts_of, day)
        return self._archived.get(vote.battle_id)


def checked_entry_id(text: str, param: str) -> EntryId:
    """The id of a log's entry in a parameter of the query. Raises ApiError INVALID_REQUEST."""
    try:
        return EntryId(text)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{param} must be the id of an entry.", param=param) from None
