"""The models of this worker behind the OpenAI routes (service_kit/openai), complete enough to be used without a
controller."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from importlib.metadata import version as distribution_version

from fastapi import APIRouter, Request

from model_worker.access import Credentials
from model_worker.engine_protocol import Accepted
from model_worker.models import Models
from model_worker.worker import ANSWER_ERRORS
from service_kit.openai.backend import with_salt
from service_kit.route_docs import documented
from wire.answers import Delta, Finished
from wire.embeddings import EmbedReply, EmbedRequest
from wire.errors import ErrorCode
from wire.openai.models import ModelObject
from wire.probes import WorkerVersion
from wire.workers import GenerateRequest, TokensReply, TokensRequest


class WorkerBackend:
    """A service_kit.openai.backend.Backend."""

    errors = (ErrorCode.MODEL_NOT_FOUND, *ANSWER_ERRORS)

    def __init__(self, models: Models, credentials: Credentials) -> None:
        self._models = models
        self._credentials = credentials
        self.stall_s = models.settings.slow_client_s

    def models(self) -> Sequence[ModelObject]:
        """All models by their aliases (`agon serve NAME=PATH_OR_HUB_ID`), also while they are being loaded."""
        return [
            ModelObject(
                id=worker.name,
                created=worker.started_at,
                max_model_len=worker.card.context_length if worker.load() is not None else None,
                chat=worker.card.chat if worker.load() is not None else "template",
            )
            for worker in self._models.served
        ]

    async def answer(
        self, request: Request, model: str, generate: GenerateRequest
    ) -> AsyncGenerator[Delta | Finished, None]:
        """As Backend.answer."""
        worker = self._models.get(model)
        salted = with_salt(generate, self._credentials.cache_salt(request))
        async with aclosing(worker.answer(salted)) as pieces:
            async for piece in pieces:
                if not isinstance(piece, Accepted):
                    yield piece

    async def embed(self, request: Request, model: str, embed: EmbedRequest) -> EmbedReply:
        """As Backend.embed."""
        worker = self._models.get(model)
        salt = self._credentials.cache_salt(request)
        return await worker.embed(embed.model_copy(update={"cache_salt": salt}))

    async def tokens(self, request: Request, model: str, asked: TokensRequest) -> TokensReply:
        """As Backend.tokens."""
        worker = self._models.get(model)
        return await worker.tokens(asked)


def add_version_route(router: APIRouter) -> None:
    """Add the route that tells the version of the service."""

    @router.get("/version")
    @documented("Probes", "Which version runs", answer=WorkerVersion, errors=())
    async def version() -> dict[str, str]:
        """The version of the installed package."""
        return {"version": distribution_version("agon")}
