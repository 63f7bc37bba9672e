"""What an answer must match, as it travels from a request to the engine of a worker."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

ConstraintKind = Literal["json_schema", "json_object", "regex", "choice", "grammar"]
MAX_CONSTRAINT_CHARS = 1 << 16


class OutputConstraint(BaseModel):
    """What the text of an answer must match as a whole (docs/structured-output.md)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ConstraintKind
    value: str = Field(
        default="",
        max_length=MAX_CONSTRAINT_CHARS,
        description="a JSON schema, a regular expression, a JSON list of texts, or a grammar; nothing for json_object",
    )
    param: str = Field(
        default="constraint", max_length=64, description="the field of the client's request that errors name"
    )
