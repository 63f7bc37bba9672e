"""The answer that clients with structured output are asked for."""

from pydantic import BaseModel, ConfigDict


class Reply(BaseModel):
    """The answer. A small model would go on with fields of its own, if it might."""

    model_config = ConfigDict(extra="forbid")

    yes: bool
