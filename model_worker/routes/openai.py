"""The one model of this worker behind the OpenAI routes (service_kit/openai), complete enough to be used without a
controller."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from importlib.metadata import version as distribution_version

from fastapi import APIRouter, Request

from model_worker.access import Credentials
from model_worker.engine_protocol import Accepted
from model_worker.worker import ANSWER_ERRORS, Worker
from service_kit.openai.backend import with_salt
from service_kit.route_docs import documented
from wire.answers import Delta, Finished
from wire.embeddings import EmbedReply, EmbedRequest
from wire.errors import ApiError, ErrorCode
from wire.openai.models import ModelObject
from wire.probes import WorkerVersion
from wire.workers import GenerateRequest, TokensReply, TokensRequest


class WorkerBackend:
    """A service_kit.openai.backend.Backend."""

    errors = (ErrorCode.MODEL_NOT_FOUND, *ANSWER_ERRORS)

    def __init__(self, worker: Worker, credentials: Credentials) -> None:
        self._worker = worker
        self._credentials = credentials
        self.stall_s = worker.settings.slow_client_s

    def models(self) -> Sequence[ModelObject]:
        """The one model, by its alias (`agon serve NAME=PATH_OR_HUB_ID`), also while it is being loaded."""
        worker = self._worker
        context_length = worker.engine.card.context_length if worker.load() is not None else None
        return [ModelObject(id=worker.settings.model_name, created=worker.started_at, max_model_len=context_length)]

    async def answer(
        self, request: Request, model: str, generate: GenerateRequest
    ) -> AsyncGenerator[Delta | Finished, None]:
        """As Backend.answer."""
        if model != self._worker.settings.model_name:
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, "This worker does not serve that model.", param="model")
        salted = with_salt(generate, self._credentials.cache_salt(request))
        async with aclosing(self._worker.answer(salted)) as pieces:
            async for piece in pieces:
                if not isinstance(piece, Accepted):
                    yield piece

    async def embed(self, request: Request, model: str, embed: EmbedRequest) -> EmbedReply:
        """As Backend.embed."""
        if model != self._worker.settings.model_name:
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, "This worker does not serve that model.", param="model")
        salt = self._credentials.cache_salt(request)
        return await self._worker.embed(embed.model_copy(update={"cache_salt": salt}))

    async def tokens(self, request: Request, model: str, asked: TokensRequest) -> TokensReply:
        """As Backend.tokens."""
        if model != self._worker.settings.model_name:
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, "This worker does not serve that model.", param="model")
        return await self._worker.tokens(asked)


def add_version_route(router: APIRouter) -> None:
    """Add the route that tells the version of the service."""

    @router.get("/version")
    @documented("Probes", "Which version runs", answer=WorkerVersion, errors=())
    async def version() -> dict[str, str]:
        """The version of the installed package."""
        return {"version": distribution_version("agon")}
