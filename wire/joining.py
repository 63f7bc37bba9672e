"""What a machine asks a controller before it starts a worker (`agon join`), and how it proves that it listens there."""

import hashlib
import hmac

from pydantic import BaseModel, ConfigDict, Field

#: Where the machine that asks answers the controller's challenge while it waits: GET, under the URL of the worker.
CHALLENGE_PATH = "/internal/join"
CHALLENGE_PATTERN = r"[0-9a-f]{32}"
PROOF_CHARS = 64


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class JoinCheck(_Frozen):
    """Body of `POST /internal/workers/check`."""

    url: str = Field(description="where controllers will reach the worker: http(s)://host[:port]")
    version: str = Field(max_length=64, description="of Agon on the machine that asks")


class JoinReport(_Frozen):
    """Answer of `POST /internal/workers/check`."""

    version: str = Field(description="of the controller")
    problem: str | None = Field(default=None, description="what to change before a worker starts there; null: nothing")


def proof_of(token: str, challenge: str) -> str:
    """The answer to a challenge: only who has the worker token can give it, and it does not tell the token."""
    return hmac.new(token.encode(), f"agon join {challenge}".encode(), hashlib.sha256).hexdigest()
