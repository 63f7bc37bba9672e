"""A vote as the log stores it and `GET /arena/votes` exports it: one JSON object per line.

Ratings and boards are computed from the log alone. A vote holds no address, no key and no prompt; conversations are
added only if an export asks for them.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.battles import Mode, Outcome, Side
from wire.chat import ChatMessage


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StyleCounts(_Frozen):
    """Style features of all answers of one side, summed; the markdown counts leave out code."""

    tokens: int = 0
    headers: int = 0
    lists: int = 0
    bold: int = 0


class VotedSide(_Frozen):
    """One side at the time of the vote. Times are those of the last turn, None if they were not measured."""

    model: str
    revision: str
    style: StyleCounts = StyleCounts()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None


class VoteRecord(_Frozen):
    """One vote. `flags` are the reasons why it is not rated; a vote without flags is rated. `voter` is a keyed hash of
    the address, under a key that changes every day. `prompt` is a keyed hash of the first prompt."""

    vote_id: str
    battle_id: str
    time: float = Field(description="Unix time of the store")
    mode: Mode
    outcome: Outcome
    a: VotedSide
    b: VotedSide
    probability: float | None = Field(
        default=None, description="of drawing this unordered pair; null where the visitor chose it"
    )
    turns: int = 1
    reasons: tuple[str, ...] = Field(default=(), fail_fast=True)
    comment: str | None = None
    voter: str | None = Field(default=None, description="hash of the address under a key that changes every day")
    prompt: str | None = Field(default=None, description="keyed hash of the first prompt")
    flags: tuple[str, ...] = Field(
        default=(), fail_fast=True, description="why the vote is not rated; none: it is rated"
    )
    schema_version: Literal[1] = Field(default=1, alias="schema")
    conversations: dict[Side, Annotated[tuple[ChatMessage, ...], Field(fail_fast=True)]] | None = Field(
        default=None, description="only in an export that asks for them"
    )

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, serialize_by_alias=True)

    @property
    def is_rated(self) -> bool:
        """True if ratings count the vote."""
        return not self.flags


class ImportReply(_Frozen):
    """Answer of `POST /arena/votes/import`. Votes on battles that the log already has are skipped."""

    imported: int
    skipped: int
