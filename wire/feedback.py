"""Feedback: what a voter adds to a vote, as reasons, a comment and a thumb for each side.

A vote is never edited, so each addition is an entry of its own in the vote log. All of them stay there; of those on one
battle the last one counts, and one without content takes the earlier ones back. No rating counts any of it.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from wire.battles import Side
from wire.votes import FEEDBACK_PREFIX

#: What decided the vote, or was missing on both sides. Clients show it in words that fit the outcome.
Reason = Literal["helpfulness", "accuracy", "style", "instructions"]
Thumb = Literal["up", "down"]

MAX_COMMENT_CHARS = 2000
MAX_ADDITIONS = 30  #: to one vote


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GiveFeedback(_Frozen):
    """Body of `POST /arena/battles/{id}/feedback`: all that the voter says about the vote, in place of what they said
    before. Empty, it takes that back."""

    reasons: tuple[Reason, ...] = Field(
        default=(), max_length=4, fail_fast=True, description="what the vote was decided by, each once"
    )
    comment: str | None = Field(default=None, max_length=MAX_COMMENT_CHARS, description="free text")
    thumbs: dict[Side, Thumb] = Field(default_factory=dict, description="each side's answers, apart from the vote")

    @field_validator("reasons")
    @classmethod
    def _each_once(cls, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
        return tuple(dict.fromkeys(reasons))

    @field_validator("comment")
    @classmethod
    def _without_blanks(cls, comment: str | None) -> str | None:
        return (comment or "").strip() or None

    @property
    def is_empty(self) -> bool:
        """True if it says nothing."""
        return not (self.reasons or self.comment or self.thumbs)


class FeedbackReply(_Frozen):
    """What the voter has said about the vote so far, and how often it may still be changed."""

    feedback: GiveFeedback
    num_left: int = Field(description="additions that the arena still takes for this vote")


class FeedbackRecord(_Frozen):
    """One addition to a vote, as the log stores it. It names the battle, because the vote's id changes when the log is
    imported elsewhere. Like a vote it holds no address; the comment is the voter's own text."""

    kind: Literal["feedback"] = "feedback"
    feedback_id: str = Field(description="its id in the log")
    key: str = Field(
        pattern=f"^{FEEDBACK_PREFIX}.",
        description="unique; the log knows an addition by it, as it knows a vote by its battle",
    )
    time: float = Field(description="Unix time of the store")
    battle_id: str
    voter: str | None = Field(default=None, description="as in the vote")
    reasons: tuple[str, ...] = Field(default=(), max_length=32, fail_fast=True)
    comment: str | None = Field(default=None, max_length=MAX_COMMENT_CHARS)
    thumbs: dict[Side, Thumb] = Field(default_factory=dict)
