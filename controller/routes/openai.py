"""Every model of the arena behind the OpenAI routes (service_kit/openai)."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from fastapi import Request

from controller.access.addresses import Addresses
from controller.access.cache_salts import CacheSalts
from controller.access.identity import Identities
from controller.access.rate_headers import note_remaining
from controller.access.rate_limits import RateLimiter
from controller.admin.terms import Terms
from controller.workers.dispatch import Dispatcher, Lane, Wish
from controller.workers.relay import Relay
from controller.workers.routing_table import RoutingTable
from controller.workers.upstream import Opened
from controller.workers.worker_tokens import WorkerTokens
from service_kit.event_stream import STALL_S
from service_kit.keys import credential
from service_kit.openai.backend import with_salt
from wire.answers import Delta, Finished
from wire.embeddings import EmbedReply, EmbedRequest
from wire.errors import ErrorCode
from wire.openai.models import ModelObject
from wire.workers import GenerateRequest, TokensReply, TokensRequest


class ArenaBackend:
    """A service_kit.openai.backend.Backend. Visitors of a web UI have accepted the `terms`; other clients have keys of
    the operator, or the arena asks for none."""

    errors = (
        ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        ErrorCode.MODEL_NOT_FOUND,
        ErrorCode.RATE_LIMITED,
        ErrorCode.TERMS_NOT_ACCEPTED,
        ErrorCode.WORKER_FAILED,
        ErrorCode.QUEUE_FULL,
        ErrorCode.NO_WORKER,
        ErrorCode.MODEL_ASLEEP,
        ErrorCode.STORE_UNAVAILABLE,
        ErrorCode.WORKER_TIMEOUT,
    )
    stall_s = STALL_S

    def __init__(
        self,
        addresses: Addresses,
        limits: RateLimiter,
        salts: CacheSalts,
        table: RoutingTable,
        dispatcher: Dispatcher,
        relay: Relay,
        identities: Identities,
        terms: Terms,
        tokens: WorkerTokens,
    ) -> None:
        self._addresses = addresses
        self._limits = limits
        self._salts = salts
        self._table = table
        self._dispatcher = dispatcher
        self._relay = relay
        self._identities = identities
        self._terms = terms
        self._tokens = tokens
        self._started = int(time.time())

    def models(self) -> Sequence[ModelObject]:
        """Those that have a ready worker."""
        ready = self._table.ready_models()
        return [
            ModelObject(id=name, created=self._started, max_model_len=card.context_length, chat=card.chat)
            for name, card in sorted(ready.items())
        ]

    async def answer(
        self, request: Request, model: str, generate: GenerateRequest
    ) -> AsyncGenerator[Delta | Finished, None]:
        """As Backend.answer; holds a lease at a worker as long as it is open."""
        lane, salt = await self._reserve(request, model)
        answer = self._relay.answer(lane, with_salt(generate, salt), caller=self._addresses.of(request).identity)
        async with lane, aclosing(answer) as events:
            async for event in events:
                if not isinstance(event, Opened):
                    yield event

    async def embed(self, request: Request, model: str, embed: EmbedRequest) -> EmbedReply:
        """As Backend.embed; holds a lease at a worker meanwhile."""
        lane, salt = await self._reserve(request, model)
        async with lane:
            salted = embed.model_copy(update={"cache_salt": salt})
            return await self._relay.embed(lane, salted, caller=self._addresses.of(request).identity)

    async def tokens(self, request: Request, model: str, asked: TokensRequest) -> TokensReply:
        """As Backend.tokens; counts as a request in the caller's rate."""
        client, tell = self._addresses.of(request), partial(note_remaining, request.scope)
        await self._limits.check(client, "completion", tell, needs_store=False)
        return await self._tokens.ask(model, asked)

    async def _reserve(self, request: Request, model: str) -> tuple[Lane, str]:
        """A place at a worker of the model, and the salt of the caller's prefixes. Raises ApiError."""
        if self._terms.are_in_force and self._addresses.is_from_proxy(request):
            await self._terms.require(await self._identities.of(request))
        client = self._addresses.of(request)
        salt = self._salts.of_caller(credential(request.headers), client)
        charge = self._limits.charge(client, "completion", partial(note_remaining, request.scope))
        [lane] = await self._dispatcher.reserve([Wish(model)], "chat", charge, needs_store=False)
        return lane, salt
