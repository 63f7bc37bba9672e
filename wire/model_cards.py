"""Model cards of the board: what a lab says of a model, apart from the worker that serves it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, HttpUrl

from wire.model_names import ModelName

MAX_STARTER_CHARS = 300


class BoardCard(BaseModel):
    """What the board shows of a model. It stays after the model's last worker has gone. A model that was registered
    before it can answer (`submitted`) is listed from then on, and never taken off: a retired one is marked."""

    model: ModelName
    provider: str | None = Field(default=None, max_length=120)
    released: str | None = Field(default=None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="date")
    retired: str | None = Field(
        default=None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="date; no battles from then on"
    )
    licence: str | None = Field(default=None, max_length=120)
    num_parameters: int | None = Field(default=None, ge=0, le=10**15)
    runs_on: str | None = Field(
        default=None, max_length=120, description="where it runs; null: what its worker says of itself"
    )
    joules_per_token: float | None = Field(
        default=None,
        ge=0.001,
        le=1e6,
        allow_inf_nan=False,
        description="energy of one token of an answer, as the operator has measured it",
    )
    link: HttpUrl | None = None
    starter_prompts: tuple[Annotated[str, Field(min_length=1, max_length=MAX_STARTER_CHARS)], ...] = Field(
        default=(),
        max_length=12,
        fail_fast=True,
        description="prompts that suit it, which pages offer while it is served",
    )
    languages: tuple[Annotated[str, Field(pattern="^[a-z]{2}$")], ...] = Field(
        default=(),
        max_length=100,
        fail_fast=True,
        description="languages that it answers in besides English, as ISO 639-1; pages offer prompts in them",
    )
    submitted: float | None = Field(default=None, description="Unix time at which the card was made")

    model_config = ConfigDict(extra="forbid", frozen=True)


class BoardCards(BaseModel):
    """Answer of `GET /arena/models`."""

    models: tuple[BoardCard, ...]

    model_config = ConfigDict(extra="forbid", frozen=True)


CardState = Literal["submitted", "active", "retired"]
