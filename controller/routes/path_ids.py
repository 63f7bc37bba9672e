"""Ids in the paths of routes: checked before the route's function gets them."""

from typing import Annotated

from fastapi import Depends, Path

from controller.battles.battle_store import not_found
from controller.chats.chat_store import chat_not_found
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId, ChatId, NoticeId, ShareId, WorkerId

#: Descriptions for `documented`.
BATTLE_ID = {"battle_id": "id of the battle; it is a secret until the vote"}
CHAT_ID = {"chat_id": "id of the chat"}
NOTICE_ID = {"notice_id": "id of the notice"}
SHARE_ID = {"share_id": "id of the link"}
WORKER_ID = {"worker_id": "id that the registration gave"}


async def _battle_id(battle_id: Annotated[str, Path()]) -> BattleId:
    """A text that is no id names no battle: the answer is that of an unknown one."""
    try:
        return BattleId(battle_id)
    except ValueError:
        raise not_found() from None


async def _chat_id(chat_id: Annotated[str, Path()]) -> ChatId:
    try:
        return ChatId(chat_id)
    except ValueError:
        raise chat_not_found() from None


async def _worker_id(worker_id: Annotated[str, Path()]) -> WorkerId:
    try:
        return WorkerId(worker_id)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"worker_id: {error}.", param="worker_id") from None


async def _notice_id(notice_id: Annotated[str, Path()]) -> NoticeId:
    try:
        return NoticeId(notice_id)
    except ValueError:
        raise ApiError(ErrorCode.NOTICE_NOT_FOUND, "There is no such notice, or it was removed.") from None


async def _share_id(share_id: Annotated[str, Path()]) -> ShareId:
    try:
        return ShareId(share_id)
    except ValueError:
        raise not_found() from None


#: Types of path parameters. Refusals: BATTLE_NOT_FOUND, CHAT_NOT_FOUND, NOTICE_NOT_FOUND, and INVALID_REQUEST for a
#: worker's id.
BattleInPath = Annotated[BattleId, Depends(_battle_id)]
ChatInPath = Annotated[ChatId, Depends(_chat_id)]
ShareInPath = Annotated[ShareId, Depends(_share_id)]
NoticeInPath = Annotated[NoticeId, Depends(_notice_id)]
WorkerInPath = Annotated[WorkerId, Depends(_worker_id)]
