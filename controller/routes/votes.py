"""Votes over HTTP: cast one, read the log, import another arena's."""

import asyncio
from collections.abc import AsyncGenerator, Iterator

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from controller.access.addresses import Addresses
from controller.access.rate_limits import RateLimiter
from controller.battles.battle_store import BattleStore
from controller.routes.path_ids import BATTLE_ID, BattleInPath
from controller.routes.replies import json_reply
from controller.votes.journal.transcripts import Conversations, TranscriptFiles, conversations_of, day_of
from controller.votes.vote_casting import VoteCasting
from controller.votes.vote_log import PIECE, VoteLog
from service_kit.bodies import Bodies
from service_kit.route_docs import Answer, documented
from wire.battles import CastVote, VoteReply
from wire.entry_ids import LOG_START, EntryId
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId
from wire.strict_json import parse_model
from wire.votes import ImportReply, VoteRecord

NDJSON = "application/x-ndjson"
MAX_IMPORT_BYTES = 64_000_000
MAX_LINE_BYTES = 16_000_000  #: decoding one line holds the interpreter for some 100 ms at worst
IMPORT_TIMEOUT_S = 300.0  #: 64 MB at 1.7 Mbit/s


def add_vote_route(
    router: APIRouter, bodies: Bodies, addresses: Addresses, limits: RateLimiter, votes: VoteCasting
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
            ErrorCode.BATTLE_NOT_FOUND,
            ErrorCode.BATTLE_NOT_FINISHED,
            ErrorCode.BATTLE_ALREADY_VOTED,
            ErrorCode.BATTLE_ABORTED,
            ErrorCode.RATE_LIMITED,
            ErrorCode.STORE_UNAVAILABLE,
        ),
    )
    async def cast(request: Request, battle_id: BattleInPath) -> Response:
        """Records the vote and reveals both models. The answer leaves when the vote is on disk; the same vote sent
        again gets the same answer. The request must come from the address that began the battle."""
        vote = await bodies.parse(request, CastVote)
        client = addresses.of(request)
        await limits.check(client, "vote")
        return json_reply(await votes.cast(battle_id, vote, client.identity))


def add_vote_log_routes(
    router: APIRouter, bodies: Bodies, log: VoteLog, battles: BattleStore, archive: TranscriptFiles | None
) -> None:
    """Add export and import of the vote log. `archive`: the texts of battles that have left the store."""

    @router.get("/arena/votes")
    @documented(
        "Votes",
        "Export the vote log",
        parameters={
            "after": "a vote id: the log after this vote",
            "conversations": "join the texts of battles that are still in the store or archived by this controller",
        },
        answer=Answer(lines=VoteRecord),
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def export(after: str = str(LOG_START), conversations: bool = False) -> Response:
        """One vote per line, oldest first."""
        first = await log.read(_checked_id(after))
        texts = _Texts(battles, archive) if conversations else None
        return StreamingResponse(_lines(log, first, texts), media_type=NDJSON)

    @router.post("/arena/votes/import")
    @documented(
        "Votes",
        "Import votes of another arena",
        request_lines=VoteRecord,
        answer=ImportReply,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def import_votes(request: Request) -> Response:
        """Appends votes, one JSON object per line as the export gives them, 64 MB at most. A battle that the log
        knows already is skipped, so importing again changes nothing."""
        body = await bodies.read(request, max_bytes=MAX_IMPORT_BYTES, timeout_s=IMPORT_TIMEOUT_S)
        votes = await asyncio.to_thread(_parse_lines, body)
        imported = 0
        for start in range(0, len(votes), PIECE):
            imported += await log.append_foreign(votes[start : start + PIECE])
        return json_reply(ImportReply(imported=imported, skipped=len(votes) - imported))


async def _lines(log: VoteLog, votes: list[VoteRecord], texts: "_Texts | None") -> AsyncGenerator[bytes, None]:
    while votes:
        for vote in votes:
            if texts is not None:
                vote = vote.model_copy(update={"conversations": await texts.of(vote)})
            yield vote.model_dump_json(exclude_none=True).encode() + b"\n"
        votes = await log.read(EntryId(votes[-1].vote_id))


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


def _parse_lines(body: bytes) -> list[VoteRecord]:
    votes = []
    for number, line in enumerate(_lines_of(body), start=1):
        if len(line) > MAX_LINE_BYTES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Line {number} is longer than {MAX_LINE_BYTES} bytes.")
        if line.strip():
            try:
                votes.append(parse_model(VoteRecord, line))
            except ApiError as error:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Line {number} is not a vote: {error.message}") from None
    return votes


def _lines_of(body: bytes) -> Iterator[bytes]:
    """One line after the other: splitting all at once would hold the interpreter, and all streams, for too long."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield body[start:end]
        start = end + 1


def _checked_id(vote_id: str) -> EntryId:
    try:
        return EntryId(vote_id)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, "after must be a vote id.", param="after") from None
