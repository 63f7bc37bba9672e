"""What happened to a conversation, step by step: for administrators (`agon why`), never for visitors. It has no text of
a conversation."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.battles import BattleState, Mode, Outcome, Side

Step = Literal[
    "created",
    "refused",
    "began",
    "taken_over",
    "accepted",
    "first_token",
    "trouble",
    "redrawn",
    "finished",
    "failed",
    "ended",
    "voted",
    "vote_refused",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TrailEntry(_Frozen):
    """One step, as the controller that made it saw it. Fields that say nothing of it are null."""

    time: float = Field(description="Unix time of that controller")
    controller: str = Field(description="its machine and process")
    step: Step
    turn: int | None = None
    side: Side | None = None
    model: str | None = None
    worker: str | None = None
    request_id: str | None = Field(
        default=None, description="of the answer in the worker's log, or of the client's request"
    )
    reason: str | None = Field(default=None, description="a code or a few words")
    ms: float | None = Field(default=None, description="since the turn began; of a vote: how long it took")
    queue_ms: float | None = Field(default=None, description="of this answer in the worker's queue")
    tokens: int | None = Field(default=None, description="of the answer, thoughts included")


class TrailView(_Frozen):
    """Answer of `GET /arena/admin/trails/{battle_id}`."""

    conversation_id: str
    kind: Literal["battle", "chat"]
    mode: Mode | None = Field(description="null: the conversation itself has expired")
    state: BattleState | None
    models: dict[Side, str]
    outcome: Outcome | None = None
    flags: tuple[str, ...] = Field(default=(), description="why the vote is not rated")
    entries: tuple[TrailEntry, ...] = Field(description="oldest first; the newest 200")
    causes: tuple[str, ...] = Field(description="what went wrong or took long, a sentence each")
