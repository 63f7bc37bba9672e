"""Judgements: entries of the vote log that take the votes of a voter, or single votes, out of the ratings, or back in.

A vote is never edited. What counts is the vote with all judgements before the end of the log: the last one about a
subject and flag decides.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from wire.votes import JUDGEMENT_PREFIX, VoteFlag

MAX_BATTLES = 1000  #: votes that one judgement may name


class Judgement(BaseModel):
    """One judgement. It concerns all votes of `voter`, or of `cohort`, or the votes on `battle_ids`: a vote is known by
    its battle, because its id changes when the log is imported elsewhere."""

    kind: Literal["judgement"] = "judgement"
    judgement_id: str = Field(description="its id in the log")
    key: str = Field(
        pattern=f"^{JUDGEMENT_PREFIX}.",
        description="unique; the log knows a judgement by it, as it knows a vote by its battle",
    )
    time: float = Field(description="Unix time of the store")
    action: Literal["flag", "unflag"]
    flag: VoteFlag
    voter: str | None = None
    cohort: str | None = None
    battle_ids: tuple[str, ...] = Field(default=(), max_length=MAX_BATTLES, fail_fast=True)
    by: Literal["judge", "admin"]
    evidence: dict[str, float] = Field(default_factory=dict, description="the figures that led to it")
    note: str | None = Field(default=None, max_length=500)

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _has_one_subject(self) -> Self:
        _require_one_subject(self.voter, self.cohort, self.battle_ids)
        return self


class CastJudgement(BaseModel):
    """Body of `POST /arena/integrity/judgements`: a judgement by an administrator about one of voter, cohort and
    battle_ids. The judge does not judge again what it concerns."""

    action: Literal["flag", "unflag"]
    flag: VoteFlag = "withdrawn"
    voter: str | None = Field(default=None, max_length=200)
    cohort: str | None = Field(default=None, max_length=200)
    battle_ids: tuple[Annotated[str, Field(max_length=200)], ...] = Field(
        default=(), max_length=MAX_BATTLES, fail_fast=True
    )
    note: str | None = Field(default=None, max_length=500)

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _has_one_subject(self) -> Self:
        _require_one_subject(self.voter, self.cohort, self.battle_ids)
        return self


class IntegrityView(BaseModel):
    """Answer of `GET /arena/integrity`: how many votes are not rated and why; names no voter."""

    num_votes: int
    num_rated: int
    unrated: dict[str, int] = Field(description="votes by flag; a vote with two flags counts twice")
    voters_judged: int
    voters_flagged: int
    judged_at: float | None = Field(description="Unix time of the last round of the judge; null: none yet")
    judged_up_to: str | None = Field(description="id of the last vote that it has seen")
    rules: dict[str, float] = Field(description="limits in force, by name")

    model_config = ConfigDict(extra="forbid", frozen=True)


def _require_one_subject(voter: str | None, cohort: str | None, battle_ids: tuple[str, ...]) -> None:
    if (voter is not None) + (cohort is not None) + bool(battle_ids) != 1:
        raise ValueError("a judgement is about one of voter, cohort, battle_ids")
