"""Vectors of texts inside the arena: what a controller asks a worker for."""

import base64
import struct
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.chat import CacheSalt, TokenId
from wire.model_names import ModelName

MAX_INPUTS = 2048

PoolingName = Literal["mean", "last", "cls"]
Input = str | Annotated[tuple[TokenId, ...], Field(min_length=1, fail_fast=True)]


class PoolingFields(BaseModel):
    """How a vector is made of a model's hidden states after its final norm, one for each token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pooling: PoolingName | None = Field(
        default=None, description="mean, last or cls (the first); null: the model's own, else last"
    )
    normalize: bool | None = Field(default=None, description="to length 1; null: the model's own, else true")
    dimensions: int | None = Field(
        default=None, ge=1, description="keep so many of the first numbers, before the vector is normalised"
    )


class EmbedRequest(PoolingFields):
    """A request for one vector for each input."""

    request_id: str = Field(min_length=1, max_length=128)
    model: ModelName | None = Field(default=None, description="which model of the worker; null: its only one")
    epoch: int | None = Field(default=None, description="start of the worker that is meant; null: any")
    inputs: tuple[Input, ...] = Field(min_length=1, max_length=MAX_INPUTS, description="texts or token ids")
    cache_salt: CacheSalt = Field(
        default="", description="cached prefixes are shared only among requests of the same salt"
    )


class EmbedReply(BaseModel):
    """The vectors, in the order of the inputs, each in base64 of little-endian float32."""

    model_config = ConfigDict(frozen=True)

    vectors: tuple[str, ...]
    prompt_tokens: int = Field(description="of all inputs together")


def packed(vector: Sequence[float]) -> str:
    """A vector as EmbedReply has it."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")


def unpacked(vector: str) -> tuple[float, ...]:
    """The numbers of a packed vector."""
    values = base64.b64decode(vector)
    return struct.unpack(f"<{len(values) // 4}f", values)
