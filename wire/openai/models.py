"""The list of models."""

from typing import Literal

from pydantic import BaseModel, Field

from wire.workers import ChatForm


class ModelObject(BaseModel):
    """One entry of `GET /v1/models`. `max_model_len` is the context length in tokens, as vLLM names it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "agon"
    max_model_len: int | None = Field(default=None, description="context in tokens; null while the model is loaded")
    chat: ChatForm = Field(default="template", description="none: a base model, for completions only; see ModelCard")


class ModelList(BaseModel):
    """Answer of `GET /v1/models`."""

    object: Literal["list"] = "list"
    data: list[ModelObject]
