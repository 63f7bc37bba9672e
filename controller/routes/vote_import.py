"""The import of votes over HTTP, in a stream without a limit of its length."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.admin.action_log import ActionLog, actor_of
from controller.routes.replies import json_reply
from controller.votes.journal.follower import VoteJournal
from controller.votes.vote_import import VoteImport, patiently
from controller.votes.vote_log import VoteLog
from service_kit.bodies import Bodies
from service_kit.route_docs import documented
from wire.errors import ErrorCode
from wire.log_records import LogRecord
from wire.votes import ImportReply


def add_vote_import_route(
    router: APIRouter,
    bodies: Bodies,
    log: VoteLog,
    journal: VoteJournal | None,
    addresses: Addresses,
    actions: ActionLog,
    *,
    patience_s: float,
) -> None:
    """Add the import. `patience_s`: how long it waits for a store that does not answer."""
    confirm = None if journal is None else journal.catch_up

    @router.post("/arena/votes/import")
    @documented(
        "Votes",
        "Import votes of another arena",
        request_lines=LogRecord,
        answer=ImportReply,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def import_votes(request: Request) -> Response:
        """Appends records of all kinds, one JSON object per line as the export gives them, while they arrive. A body
        may be of any length; a line has 16 MB at most, and no pause may be longer than 30 s. A vote on a battle, or
        another record with a key, that the log knows already is skipped, so importing again changes nothing, and an
        import that was cut off goes on when it is sent again. The answer leaves when the journal has all of it, too."""
        actor = actor_of(request, addresses)
        await patiently(lambda: actions.append(actor, "import_votes", "vote log"), patience_s)
        return json_reply(await VoteImport(log, patience_s=patience_s, confirm=confirm).run(bodies.pieces(request)))
