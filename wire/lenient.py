"""Parts of requests in which null means absent, as clients of other services expect."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Discriminator, model_validator


class LenientFields(BaseModel):
    """A part of a request in which a field that is null counts as absent; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: item for name, item in value.items() if item is not None}


#: Discriminator of contents: a string (Tag "a string") or a list (Tag "a list"). With it errors tell what is wrong
#: in the list. The tags have spaces, so that they are no part of the path of a field (strict_json.py).
STRING_OR_LIST = Discriminator(lambda value: "a string" if isinstance(value, str) else "a list")
