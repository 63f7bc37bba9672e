"""A vote as the log stores it and `GET /arena/votes` exports it: one JSON object per line.

Ratings and boards are computed from the log alone. A vote holds no address, no key and no prompt; conversations are
added only if an export asks for them.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from wire.battles import Mode, Outcome, Side
from wire.chat import ChatMessage

#: Begin the keys of records that are no votes, which stand where a vote has its battle; so no battle's id begins so.
JUDGEMENT_PREFIX = "judgement:"
FEEDBACK_PREFIX = "feedback:"
LABEL_PREFIX = "label:"
KEY_PREFIXES = (JUDGEMENT_PREFIX, FEEDBACK_PREFIX, LABEL_PREFIX)


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


#: Why a vote is not rated. The first five are known when it is cast; the others are added by judgements
#: (wire/judgements.py), and may be taken back.
VoteFlag = Literal[
    "named",  # the visitor chose the models
    "identity_revealed",  # an answer or a prompt gave a model's name away
    "stopped",  # an answer was stopped before its end
    "too_quick",  # faster than anybody can read
    "same_model",
    "anomalous_voter",  # contradicts all other voters, beyond what chance explains
    "anomalous_cohort",  # votes like others of its group, and unlike everybody else
    "voter_cap",  # beyond the votes of one voter that count on one day
    "address_cap",
    "prompt_cap",  # beyond the votes on one prompt that count
    "probation",  # the first votes of a new identity count once it has enough of them
    "withdrawn",  # by an administrator
]
IdentityKind = Literal["address", "cookie", "invite", "header"]


class VoteRecord(_Frozen):
    """One vote. `flags` are the reasons, known when it was cast, why it is not rated (`VoteFlag`; an import may have
    others). `voter` is a keyed hash of the visitor's identity, `prompt` of the first prompt."""

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
    voter: str | None = Field(
        default=None, description="keyed hash of the voter's identity; of an address under a key that changes every day"
    )
    prompt: str | None = Field(default=None, description="keyed hash of the first prompt")
    flags: tuple[str, ...] = Field(
        default=(), fail_fast=True, description="why the vote is not rated; none: it is rated"
    )
    identity: IdentityKind | None = Field(default=None, description="how the voter is known; null: not known")
    network: str | None = Field(
        default=None, description="hash of the address's network under a key that changes every day, for caps"
    )
    cohort: str | None = Field(default=None, description="the group that a voter was invited to")
    consent: bool | None = Field(default=None, description="whether the visitor agreed to a release of the texts")
    language: str | None = Field(default=None, description="ISO 639-1 code of the first prompt's language")
    categories: tuple[str, ...] = Field(default=(), fail_fast=True, description="kinds of prompt and answer")
    read_ms: float | None = Field(default=None, description="from the end of the answers to the vote")
    schema_version: Literal[1, 2] = Field(default=2, alias="schema")
    conversations: dict[Side, Annotated[tuple[ChatMessage, ...], Field(fail_fast=True)]] | None = Field(
        default=None, description="only in an export that asks for them"
    )

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, serialize_by_alias=True)

    @field_validator("battle_id")
    @classmethod
    def _is_no_key(cls, battle_id: str) -> str:
        if battle_id.startswith(KEY_PREFIXES):
            raise ValueError(f"the id of a battle does not begin with any of {', '.join(KEY_PREFIXES)}")
        return battle_id

    @property
    def is_rated(self) -> bool:
        """True if ratings count the vote."""
        return not self.flags


class ImportReply(_Frozen):
    """Answer of `POST /arena/votes/import`, in entries of the log of any kind. Those that the log already has
    are skipped; it knows a vote by its battle."""

    imported: int
    skipped: int
