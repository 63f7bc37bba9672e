"""What happened to one battle or chat, for the administrator who asks why."""

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response

from controller.battles.battle_record import Battle
from controller.battles.battle_store import TurnStore, not_found
from controller.battles.causes import causes
from controller.battles.trails import Trails
from controller.routes.replies import json_reply
from service_kit.route_docs import documented
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId, ChatId
from wire.trails import TrailView

_GONE = (ErrorCode.BATTLE_NOT_FOUND, ErrorCode.CHAT_NOT_FOUND)


def add_trail_route(router: APIRouter, trails: Trails, battles: TurnStore, chats: TurnStore) -> None:
    """Add it; `router` is the admin's."""

    @router.get("/arena/admin/trails/{battle_id}")
    @documented(
        "Administration",
        "What happened to a battle or chat",
        parameters={"battle_id": "id of the battle, or of a chat"},
        answer=TrailView,
        errors=(ErrorCode.BATTLE_NOT_FOUND, ErrorCode.STORE_UNAVAILABLE),
    )
    async def trail(battle_id: Annotated[str, Path()]) -> Response:
        """Every step that its controllers noted, and a sentence for each thing that went wrong or took long. Steps are
        kept for two days; there is no text among them. `agon why` shows them beside the lines of the logs."""
        try:
            conversation, chat_id = BattleId(battle_id), ChatId(battle_id)
        except ValueError:
            raise not_found() from None
        entries = await trails.read(conversation)
        battle = await _or_none(battles, conversation)
        chat = None if battle is not None else await _or_none(chats, chat_id)
        found = battle or chat
        if found is None and not entries:
            raise not_found()
        return json_reply(
            TrailView(
                conversation_id=conversation,
                kind="chat" if chat is not None else "battle",
                mode=None if found is None else found.mode,
                state=None if found is None else found.state,
                models={} if found is None else {side: stored.model for side, stored in found.sides.items()},
                outcome=None if found is None else found.outcome,
                flags=() if found is None else found.flags,
                entries=entries,
                causes=causes(entries),
            )
        )


async def _or_none(store: TurnStore, conversation: BattleId) -> Battle | None:
    """The conversation, None if there is none. Raises ApiError for other failures."""
    try:
        return await store.read(conversation)
    except ApiError as error:
        if error.code in _GONE:
            return None
        raise
