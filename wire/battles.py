"""Battles as clients see them: requests, views, and the events of a turn's stream.

Before the vote none of these holds a model name, except in mode "named", where the visitor chose the models. Each event
has an SSE id; a client that lost its connection sends the last id as Last-Event-ID and gets exactly the events after
it. Apart from the events below, a stream may carry one `error` (an ErrorBody): this connection ends, but the battle may
go on, and the client should resume it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from wire.chat import FinishReason, Usage
from wire.errors import ErrorDetail
from wire.ids import BattleId

Mode = Literal["anonymous", "named"]
Side = Literal["a", "b"]
Outcome = Literal["a", "b", "tie", "both_bad"]
BattleState = Literal["open", "streaming", "answered", "voted", "aborted", "expired"]

SIDES: tuple[Side, Side] = ("a", "b")


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BattleSampling(_Frozen):
    """Sampling parameters that a visitor may set, in named mode only."""

    temperature: float | None = Field(default=None, ge=0, le=2, description="null: the model's own default")
    top_p: float | None = Field(default=None, gt=0, le=1, description="null: the model's own default")
    max_tokens: int | None = Field(
        default=None, ge=1, le=4096, description="bound of one answer; AGON_BATTLE_MAX_TOKENS bounds it further"
    )


class CreateBattle(_Frozen):
    """Body of `POST /arena/battles`: the mode, and in named mode the two models and their sampling."""

    mode: Mode = Field(description="anonymous: two hidden models are drawn; named: the visitor chooses them")
    models: tuple[str, str] | None = Field(
        default=None, description="names of two different models, in named mode only"
    )
    sampling: BattleSampling | None = Field(default=None, description="in named mode only")

    @model_validator(mode="after")
    def _models_fit_mode(self) -> "CreateBattle":
        if self.mode == "named" and self.models is None:
            raise ValueError("named mode needs two models")
        if self.mode == "anonymous" and (self.models is not None or self.sampling is not None):
            raise ValueError("an anonymous battle chooses its models and their sampling itself")
        if self.models is not None and self.models[0] == self.models[1]:
            raise ValueError("the two models must differ")
        return self


class CreateTurn(_Frozen):
    """Body of `POST /arena/battles/{id}/turns`: the prompt of both sides."""

    content: str = Field(min_length=1, description="the message; at most AGON_MAX_CONTENT_CHARS characters")
    number: int | None = Field(
        default=None,
        ge=1,
        description="the number that the turn shall have, as the client sees the battle; refused with `stale_turn` if "
        "another page has gone on with it meanwhile",
    )


class CastVote(_Frozen):
    """Body of `POST /arena/battles/{id}/vote`."""

    outcome: Outcome = Field(description="the better side, tie, or both_bad")
    number: int | None = Field(
        default=None,
        ge=1,
        description="number of the last turn, as the voter sees the battle; refused with `stale_turn` if another page "
        "has gone on with it meanwhile",
    )
    reasons: tuple[str, ...] = Field(
        default=(), max_length=8, fail_fast=True, description="labels of at most 64 characters each"
    )
    comment: str | None = Field(default=None, max_length=2000, description="free text")
    consent: bool | None = Field(
        default=None, description="whether the visitor agrees that the texts of this battle are released with the vote"
    )


class Answer(_Frozen):
    """One side's answer to one turn."""

    text: str
    thoughts: str = Field(
        default="", description="what the model thought before it answered; hidden until the models are known"
    )
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    error: ErrorDetail | None = None


class Turn(_Frozen):
    """One prompt and its two answers. `number` counts from 1."""

    number: int
    content: str
    a: Answer
    b: Answer


class SideView(_Frozen):
    """One side of a battle. `model` is null until the vote reveals it, except in named mode."""

    model: str | None = None


class BattleView(_Frozen):
    """Answer of `GET /arena/battles/{id}`: the whole battle, without what the visitor may not know yet."""

    id: BattleId
    mode: Mode
    state: BattleState
    a: SideView
    b: SideView
    turns: tuple[Turn, ...] = ()
    outcome: Outcome | None = None
    error: ErrorDetail | None = Field(default=None, description="why an aborted battle was aborted")
    identity_revealed: bool = Field(
        default=False, description="an answer named its own model: the vote is shown, but not rated"
    )
    flags: tuple[str, ...] = Field(
        default=(), description="why the vote is not rated (`VoteFlag`), as known when it was cast; empty before it"
    )
    max_turns: int = Field(description="turns that a battle may have")


class VoteReply(_Frozen):
    """Answer of a vote, equal for every replay of the same vote. It reveals both models."""

    vote_id: str
    battle_id: BattleId
    outcome: Outcome
    models: dict[Side, str] = Field(description="the models behind both sides")
    rated: bool = Field(description="false: the vote is in the log, but no rating counts it")
    flags: tuple[str, ...] = Field(default=(), description="why the vote is not rated (`VoteFlag`)")


class DeltaEvent(_Frozen):
    """SSE `delta`: text to append to one side; `seq` counts per side from 0. A side whose model thinks has thoughts
    first, without text, unless the models are hidden."""

    side: Side
    seq: int
    text: str
    thoughts: str = Field(default="", description="to append to the thoughts of the side; hidden models have none")


class WakingEvent(_Frozen):
    """SSE `waking`: the turn begins when models are in memory. It names no side: in a battle of hidden models it comes
    whenever some model of the arena sleeps, whichever the two are."""


class FinishedEvent(_Frozen):
    """SSE `finished`: this side has answered. `usage` is null while the models are hidden, because token counts of one
    prompt differ between tokenizers and would give a model away."""

    side: Side
    finish_reason: FinishReason
    usage: Usage | None = None


class FailedEvent(_Frozen):
    """SSE `failed`: this side could not answer. The turn stays, counts for nothing, and may be answered again. If it
    was refused (the prompt is too long, a worker is full), or was to replace good answers, it is dropped instead:
    `is_kept` in `turn_finished` tells the two cases apart."""

    side: Side
    error: ErrorDetail


class RestartedEvent(_Frozen):
    """SSE `restarted`: this side is answered again from the start. The client drops the side's text of this turn and
    expects delta 0. Reasons: the side failed before its first token, or a regeneration began while the client was
    disconnected."""

    side: Side


class TurnFinishedEvent(_Frozen):
    """SSE `turn_finished`, always the last event of a turn."""

    turn: int
    state: BattleState
    is_kept: bool = Field(
        default=True, description="false: the turn was refused; the battle is as it was before, old answers included"
    )
