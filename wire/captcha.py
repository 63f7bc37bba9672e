"""The check that a new visitor is a person: request and answer of `POST /arena/voters/check`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class CheckVisitor(BaseModel):
    """Body of `POST /arena/voters/check`."""

    response: str = Field(min_length=1, max_length=4096, description="what the captcha's widget gave the visitor")

    model_config = ConfigDict(extra="forbid", frozen=True)


class CheckReply(BaseModel):
    """Its answer; with it comes a cookie."""

    outcome: Literal["passed", "unavailable", "not_asked"] = Field(
        description="passed: the cookie makes the client a voter; unavailable: the captcha's service did not answer, "
        "and the cookie lets the client in for an hour, known by its address; not_asked: this arena has no captcha"
    )

    model_config = ConfigDict(extra="forbid", frozen=True)
