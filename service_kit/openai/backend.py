"""What a service provides, so that the OpenAI routes can serve its models."""

import hashlib
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from fastapi import Request

from wire.answers import Delta, Finished
from wire.embeddings import EmbedReply, EmbedRequest
from wire.errors import ApiError, ErrorCode
from wire.openai.models import ModelObject
from wire.workers import GenerateRequest, TokensReply, TokensRequest


class Backend(Protocol):
    """The controller with all models of its arena, or a worker with one. Made once, by the composition root."""

    @property
    def errors(self) -> tuple[ErrorCode, ...]:
        """What `answer` raises besides INVALID_REQUEST; the documentation names it."""
        ...

    @property
    def stall_s(self) -> float:
        """A client of a stream that takes no bytes for so many seconds is cut off."""
        ...

    def models(self) -> Sequence[ModelObject]:
        """The models that can be asked, sorted by name."""
        ...

    def answer(self, request: Request, model: str, generate: GenerateRequest) -> AsyncGenerator[Delta | Finished, None]:
        """Deltas of the samples of one answer, then Finished. Raises ApiError: before the first delta for a refusal,
        later for a failure.

        `request` tells who asks. The backend sets `cache_salt` of `generate`. Closing the generator ends the answer and
        frees what it holds.
        """
        ...

    async def embed(self, request: Request, model: str, embed: EmbedRequest) -> EmbedReply:
        """One vector for each input. Raises ApiError. As in `answer`, `request` tells who asks."""
        ...

    async def tokens(self, request: Request, model: str, asked: TokensRequest) -> TokensReply:
        """The tokens of a prompt, or the text of tokens. Raises ApiError."""
        ...


def with_salt(generate: GenerateRequest, caller: str) -> GenerateRequest:
    """The request with a salt of the prefix cache that no other caller can have, and that depends on the request's own
    one. `caller`: the salt of the caller, in at most 32 characters."""
    own = hashlib.sha256(generate.cache_salt.encode()).hexdigest()[:32] if generate.cache_salt else ""
    return generate.model_copy(update={"cache_salt": caller + own})


def find_model(backend: Backend, name: str) -> ModelObject:
    """The entry of one model. Raises ApiError MODEL_NOT_FOUND."""
    for found in backend.models():
        if found.id == name:
            return found
    raise ApiError(ErrorCode.MODEL_NOT_FOUND, f"The model {name!r} does not exist.", param="model")
