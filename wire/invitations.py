"""Invitations of voters: what administrators and invited visitors send and get."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

VOTER_NAME = "[A-Za-z0-9._@+-]{1,64}"
VoterName = Annotated[str, StringConstraints(pattern=f"^{VOTER_NAME}$")]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CreateInvitation(_Frozen):
    """Body of `POST /arena/voters/invitations`."""

    name: VoterName = Field(description="of the voter, for the administrator; no vote record holds it")
    cohort: VoterName | None = Field(default=None, description="group of voters; vote records hold it")


class Invitation(_Frozen):
    """One invitation. A link with its token makes a browser vote as this voter, until it is revoked."""

    name: str
    cohort: str | None = None
    token: str = Field(description="what the link ends with: `/join/TOKEN` of the web UI")
    created: int = Field(description="Unix time of the store")
    revoked: int | None = Field(default=None, description="Unix time of the store; null: it holds")


class InvitationList(_Frozen):
    """Answer of `GET /arena/voters/invitations`, oldest first."""

    invitations: tuple[Invitation, ...]


class JoinReply(_Frozen):
    """Answer of `POST /arena/voters/join/{invitation}`; its cookie makes the client the invited voter."""

    name: str
    cohort: str | None = None
