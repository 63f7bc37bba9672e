"""Labels: what a model says about the kind of a voted conversation, in place of the rules' categories.

A vote is never edited, so each label is an entry of its own in the vote log. The last one about a battle counts.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.votes import LABEL_PREFIX

MAX_CATEGORIES = 32  #: of one label


class LabelRecord(BaseModel):
    """One label, as the log stores it. It names the battle, because the vote's id changes when the log is imported
    elsewhere."""

    kind: Literal["label"] = "label"
    label_id: str = Field(description="its id in the log")
    key: str = Field(
        pattern=f"^{LABEL_PREFIX}.", description="unique; the log knows a label by it, as it knows a vote by its battle"
    )
    time: float = Field(description="Unix time of the store")
    battle_id: str
    categories: tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")], ...] = Field(
        max_length=MAX_CATEGORIES, fail_fast=True, description="all categories of the vote from now on"
    )
    by: str = Field(max_length=200, description="the model that said so")

    model_config = ConfigDict(extra="forbid", frozen=True)
