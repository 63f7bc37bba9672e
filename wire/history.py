"""A visitor's own battles, and a battle that its visitor shows to others."""

from pydantic import BaseModel, ConfigDict, Field

from wire.battles import BattleState, Mode, Outcome, Side, Turn
from wire.ids import BattleId, ShareId


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HistoryEntry(_Frozen):
    """One battle of the visitor."""

    id: BattleId
    began_s: float = Field(description="when it began, in seconds since 1970")
    mode: Mode
    state: BattleState
    question: str = Field(description="beginning of the first message")
    num_turns: int
    outcome: Outcome | None = None
    models: dict[Side, str] | None = Field(default=None, description="null until the vote, except in named mode")
    share_id: ShareId | None = Field(default=None, description="of the link that shows it to others, if there is one")


class HistoryReply(_Frozen):
    """Answer of `GET /arena/history`, newest first."""

    battles: tuple[HistoryEntry, ...]


class ShareReply(_Frozen):
    """Answer of a request to share a battle; the same again when it is sent again."""

    share_id: ShareId = Field(description="opens the battle for reading: `/shared/ID` of the web UI")


class SharedBattle(_Frozen):
    """A voted battle as everybody with its link may read it. Of its visitor it says nothing but the texts."""

    mode: Mode
    outcome: Outcome
    models: dict[Side, str]
    turns: tuple[Turn, ...]
    day: str = Field(description="day on which it began (UTC)")
