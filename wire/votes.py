"""A vote as the log keeps it and as `GET /arena/votes` gives it out: one JSON object per line.

The log is the truth; ratings and boards are folds of it. No address, no key, no prompt: conversations are joined in
only when an export asks for them.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.battles import Mode, Outcome, Side
from wire.chat import ChatMessage


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StyleCounts(_Frozen):
    """What the style of all answers of one side amounts to; code is left out of the markdown counts."""

    tokens: int = 0
    headers: int = 0
    lists: int = 0
    bold: int = 0


class VotedSide(_Frozen):
    """One side as it stood when the vote was cast. Times are those of the last turn, None where none was measured."""

    model: str
    revision: str
    style: StyleCounts = StyleCounts()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None


class VoteRecord(_Frozen):
    """`flags` say why a vote is not rated; without flags it is. `voter` is a keyed hash of the address under a key that
    changes every day. `prompt` is a keyed hash of the first prompt, equal for equal prompts."""

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
    reasons: tuple[str, ...] = ()
    comment: str | None = None
    voter: str | None = Field(default=None, description="hash of the address under a key that changes every day")
    prompt: str | None = Field(default=None, description="keyed hash of the first prompt")
    flags: tuple[str, ...] = Field(default=(), description="why the vote is not rated; none: it is rated")
    schema_version: Literal[1] = Field(default=1, alias="schema")
    conversations: dict[Side, tuple[ChatMessage, ...]] | None = Field(
        default=None, description="only in an export that asks for them"
    )

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, serialize_by_alias=True)

    @property
    def is_rated(self) -> bool:
        return not self.flags


class ImportReply(_Frozen):
    """Answer of `POST /arena/votes/import`. Votes whose battle the log knew already are skipped."""

    imported: int
    skipped: int
