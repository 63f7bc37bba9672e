"""The list of models in Anthropic's shape."""

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, Field

from wire.openai.models import ModelObject


class ModelInfo(BaseModel):
    """One model."""

    type: Literal["model"] = "model"
    id: str
    display_name: str
    created_at: str = Field(description="RFC 3339")
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int | None = Field(default=None, description="context in tokens; null while it is loaded")
    max_tokens: int | None = Field(default=None, description="likewise: prompt and answer share it")

    @classmethod
    def of(cls, model: ModelObject) -> "ModelInfo":
        """The entry of OpenAI's list in this shape."""
        created = datetime.fromtimestamp(model.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        length = model.max_model_len
        return cls(id=model.id, display_name=model.id, created_at=created, max_input_tokens=length, max_tokens=length)


class ModelPage(BaseModel):
    """Answer of `GET /v1/models` to a client that sends `anthropic-version`: all models on one page."""

    data: list[ModelInfo]
    has_more: Literal[False] = False
    first_id: str | None
    last_id: str | None

    @classmethod
    def of(cls, models: list[ModelInfo]) -> "ModelPage":
        """The page of these models."""
        ids = [model.id for model in models]
        return cls(data=models, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None)
