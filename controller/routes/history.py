"""A visitor's own battles over HTTP: list them, take one off the list, share one, read a shared one."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from controller.access.identity import Identities
from controller.access.rate_limits import RateLimiter
from controller.battles.sharing import Sharing
from controller.routes.path_ids import BATTLE_ID, SHARE_ID, BattleInPath, ShareInPath
from controller.routes.replies import json_reply
from service_kit.route_docs import Answer, documented
from wire.errors import ErrorCode
from wire.history import HistoryReply, SharedBattle, ShareReply

_OF_ALL = (ErrorCode.VOTER_NOT_KNOWN, ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE)
_OF_A_BATTLE = (*_OF_ALL, ErrorCode.BATTLE_NOT_FOUND, ErrorCode.NOT_YOUR_BATTLE)


def add_history_routes(router: APIRouter, identities: Identities, limits: RateLimiter, sharing: Sharing) -> None:
    """Add the routes of a visitor's history and of shared battles to `router`."""

    @router.get("/arena/history")
    @documented("History", "List one's own battles", answer=HistoryReply, errors=_OF_ALL)
    async def history(request: Request) -> Response:
        """The newest hundred battles that the cookie, the invitation or the proxy's name of the request has begun and
        that are still stored. A client without any of these has no history: others may have its address."""
        await limits.check(identities.client_of(request), "history")
        entries = await sharing.history(await identities.of(request))
        return json_reply(HistoryReply(battles=tuple(entries)))

    @router.delete("/arena/history/{battle_id}")
    @documented(
        "History",
        "Take a battle off one's history",
        parameters=BATTLE_ID,
        answer=Answer(status=204),
        errors=(*_OF_ALL, ErrorCode.BATTLE_NOT_FOUND),
    )
    async def forget(request: Request, battle_id: BattleInPath) -> Response:
        """Its link is taken back, too. A vote stays, and a battle that is not listed is no error."""
        await limits.check(identities.client_of(request), "history")
        await sharing.forget(battle_id, await identities.of(request))
        return Response(status_code=204)

    @router.post("/arena/battles/{battle_id}/share")
    @documented(
        "History",
        "Share a voted battle",
        parameters=BATTLE_ID,
        answer=ShareReply,
        errors=(*_OF_A_BATTLE, ErrorCode.BATTLE_NOT_FINISHED),
    )
    async def share(request: Request, battle_id: BattleInPath) -> Response:
        """Makes a link under which everybody may read texts, models and outcome, for `AGON_SHARED_BATTLE_TTL_S`. Sent
        again, it gives the same link. The request has no body, and must come from the visitor who began the battle."""
        await limits.check(identities.client_of(request), "share")
        return json_reply(ShareReply(share_id=await sharing.share(battle_id, await identities.of(request))))

    @router.delete("/arena/battles/{battle_id}/share")
    @documented(
        "History",
        "Take a link back",
        parameters=BATTLE_ID,
        answer=Answer(status=204),
        errors=_OF_A_BATTLE,
    )
    async def unshare(request: Request, battle_id: BattleInPath) -> Response:
        """From then on the link shows nothing. A battle without a link is no error."""
        await limits.check(identities.client_of(request), "share")
        await sharing.unshare(battle_id, await identities.of(request))
        return Response(status_code=204)

    @router.get("/arena/shared/{share_id}")
    @documented(
        "History",
        "Read a shared battle",
        parameters=SHARE_ID,
        answer=SharedBattle,
        errors=(ErrorCode.BATTLE_NOT_FOUND, ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def shared(request: Request, share_id: ShareInPath) -> Response:
        """Texts, models and outcome; nothing of the visitor."""
        await limits.check(identities.client_of(request), "shared")
        return json_reply(await sharing.shared(share_id))
