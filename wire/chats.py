"""Chats as clients see them: conversations with one known model at a time, which are never voted on.

The events of a chat's turns are those of a battle (wire/battles.py), of side `a` alone.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.battles import Answer, BattleSampling
from wire.ids import ChatId
from wire.model_names import ModelName

ChatState = Literal["open", "streaming", "answered"]

_MODEL = "name of the model that answers from this turn on; null: the one that answered before"
_SAMPLING = "sampling from this turn on; null: as before"


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CreateChat(_Frozen):
    """Body of `POST /arena/chats`."""

    model: ModelName = Field(description="name of the model that answers first")
    system_prompt: str = Field(
        default="",
        description="what every model of the chat is told before the first message; at most AGON_MAX_CONTENT_CHARS "
        "characters",
    )
    sampling: BattleSampling | None = Field(default=None, description="null: the models' own defaults")


class AskChat(_Frozen):
    """Body of `POST /arena/chats/{id}/turns`: a message, and what changes with it."""

    content: str = Field(min_length=1, description="the message; at most AGON_MAX_CONTENT_CHARS characters")
    number: int | None = Field(
        default=None,
        ge=1,
        description="the number that the turn shall have, as the client sees the chat; refused with `stale_turn` if "
        "another page has gone on with it meanwhile",
    )
    model: ModelName | None = Field(default=None, description=_MODEL)
    sampling: BattleSampling | None = Field(default=None, description=_SAMPLING)


class AnswerAgain(_Frozen):
    """Body of `POST /arena/chats/{id}/regenerate`: the last turn is answered again, perhaps with another message."""

    number: int | None = Field(
        default=None,
        ge=1,
        description="the number of the last turn, as the client sees the chat; refused with `stale_turn` if another "
        "page has gone on with it meanwhile",
    )
    content: str | None = Field(default=None, min_length=1, description="replaces the message; null: it stays")
    model: ModelName | None = Field(default=None, description=_MODEL)
    sampling: BattleSampling | None = Field(default=None, description=_SAMPLING)


class ChatTurn(_Frozen):
    """One message and its answer. `number` counts from 1."""

    number: int
    content: str
    model: str = Field(description="the model that was asked")
    answer: Answer


class ChatView(_Frozen):
    """Answer of `GET /arena/chats/{id}`: the whole chat."""

    id: ChatId
    state: ChatState
    model: str = Field(description="the model that answers the next turn, unless that names another one")
    system_prompt: str
    sampling: BattleSampling
    turns: tuple[ChatTurn, ...] = ()
    max_turns: int = Field(description="turns that a chat may have")
