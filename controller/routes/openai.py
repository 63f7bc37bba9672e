"""The OpenAI-compatible API of every model in the arena.

A request is answered with a proper status until its first token; a failure after that is one error event, without
[DONE].
"""

import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from controller.access.addresses import Addresses
from controller.access.cache_salts import CacheSalts
from controller.access.identity import Identities
from controller.access.rate_limits import Charge, RateLimiter
from controller.admin.terms import Terms
from controller.routes.replies import json_reply
from controller.workers.dispatch import Dispatcher, Wish
from controller.workers.relay import Relay
from controller.workers.routing_table import RoutingTable
from controller.workers.upstream import Delta, Finished, Opened
from service_kit.bodies import Bodies
from service_kit.event_stream import EventStream, until_disconnect
from service_kit.route_docs import Answer, documented
from wire.errors import ApiError, ErrorCode
from wire.openai import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    CompletionRequest,
    CompletionShaper,
    ModelList,
    ModelObject,
    TextCompletion,
    TextCompletionChunk,
    encode_chunk,
)
from wire.workers import GenerateRequest, ModelCard

DONE = b"data: [DONE]\n\n"
COMPLETION_ERRORS = (
    ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    ErrorCode.MODEL_NOT_FOUND,
    ErrorCode.RATE_LIMITED,
    ErrorCode.TERMS_NOT_ACCEPTED,
    ErrorCode.WORKER_FAILED,
    ErrorCode.QUEUE_FULL,
    ErrorCode.NO_WORKER,
    ErrorCode.STORE_UNAVAILABLE,
    ErrorCode.WORKER_TIMEOUT,
)


def add_openai_routes(
    router: APIRouter,
    bodies: Bodies,
    addresses: Addresses,
    limits: RateLimiter,
    salts: CacheSalts,
    table: RoutingTable,
    dispatcher: Dispatcher,
    relay: Relay,
    identities: Identities,
    terms: Terms,
) -> None:
    """Add the OpenAI-compatible routes to `router`. Visitors of a web UI have accepted the `terms`; other clients have
    keys of the operator, or the arena asks for none."""
    started = int(time.time())

    def salt(request: Request) -> str:
        return salts.of_caller(request.headers.get("authorization"), addresses.of(request))

    def model_object(card: ModelCard) -> ModelObject:
        return ModelObject(id=card.name, created=started, max_model_len=card.context_length)

    @router.get("/v1/models")
    @documented("Models", "List the models that have a ready worker", answer=ModelList, errors=())
    async def models() -> Response:
        """Sorted by name. A model whose last worker left is not in the list."""
        ready = table.ready_models()
        return json_reply(ModelList(data=[model_object(ready[name]) for name in sorted(ready)]))

    @router.get("/v1/models/{model:path}")
    @documented(
        "Models",
        "Read one model",
        parameters={"model": "name of the model; it may hold slashes"},
        answer=ModelObject,
        errors=(ErrorCode.MODEL_NOT_FOUND,),
    )
    async def model(model: str) -> Response:
        """The entry of one model in the list above."""
        card = table.ready_models().get(model)
        if card is None:
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, f"The model {model!r} does not exist.", param="model")
        return json_reply(model_object(card))

    @router.post("/v1/chat/completions")
    @documented(
        "Completions",
        "Continue a chat",
        request=ChatCompletionRequest,
        example={"model": "raven", "messages": [{"role": "user", "content": "What is 17 + 25?"}]},
        answer=Answer(json=ChatCompletion, events={"message": ChatCompletionChunk}),
        errors=COMPLETION_ERRORS,
    )
    async def chat_completions(request: Request) -> Response:
        """OpenAI's chat completions for any model of the arena. With `stream` the answer is a stream of chunks that
        ends with `data: [DONE]`; a failure after the first token is one chunk with `error`, without `[DONE]`."""
        body = await bodies.parse(request, ChatCompletionRequest)
        generate = GenerateRequest(
            request_id=secrets.token_hex(12),
            messages=body.chat_messages(),
            chat_template_kwargs=body.chat_template_kwargs or {},
            sampling=body.sampling(),
            cache_salt=salt(request),
        )
        return await complete(request, body, generate, "chat")

    @router.post("/v1/completions")
    @documented(
        "Completions",
        "Continue a text",
        request=CompletionRequest,
        example={"model": "raven", "prompt": "Once upon a time", "max_tokens": 32},
        answer=Answer(json=TextCompletion, events={"message": TextCompletionChunk}),
        errors=COMPLETION_ERRORS,
    )
    async def completions(request: Request) -> Response:
        """OpenAI's completions: one text prompt, without a chat template. Streams as chat completions do."""
        body = await bodies.parse(request, CompletionRequest)
        generate = GenerateRequest(
            request_id=secrets.token_hex(12), prompt=body.prompt, sampling=body.sampling(), cache_salt=salt(request)
        )
        return await complete(request, body, generate, "text")

    async def complete(
        request: Request,
        body: ChatCompletionRequest | CompletionRequest,
        generate: GenerateRequest,
        kind: Literal["chat", "text"],
    ) -> Response:
        if terms.are_in_force and addresses.is_from_proxy(request):
            await terms.require(await identities.of(request))
        prefix = "chatcmpl-" if kind == "chat" else "cmpl-"
        shaper = CompletionShaper(
            kind=kind, completion_id=prefix + generate.request_id, model=body.model, created=int(time.time())
        )
        events = _answer(dispatcher, relay, body.model, generate, limits.charge(addresses.of(request), "completion"))
        if not body.stream:
            async with aclosing(events):
                return JSONResponse(await until_disconnect(request, _whole(events, shaper)))
        return EventStream(_chunks(events, shaper, body.wants_usage), begins_with_event=True)


async def _answer(
    dispatcher: Dispatcher, relay: Relay, model: str, generate: GenerateRequest, charge: Charge
) -> AsyncGenerator[Delta | Finished, None]:
    """Text and end of one answer; holds a lease at a worker as long as it is open."""
    [lane] = await dispatcher.reserve([Wish(model)], "chat", charge)
    async with lane, aclosing(relay.answer(lane, generate)) as events:
        async for event in events:
            if not isinstance(event, Opened):
                yield event


async def _whole(events: AsyncGenerator[Delta | Finished, None], shaper: CompletionShaper) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    async for event in events:
        if isinstance(event, Finished):
            return shaper.whole("".join(texts), event.finish_reason, event.usage, "".join(thoughts))
        texts.append(event.text)
        thoughts.append(event.thoughts)
    raise AssertionError("an answer without an end")


async def _chunks(
    events: AsyncGenerator[Delta | Finished, None], shaper: CompletionShaper, usage: bool
) -> AsyncGenerator[bytes, None]:
    """ApiError before the first chunk, where the answer fails before its first event; after it the error is a chunk."""
    async with aclosing(events):
        event = await anext(events)
        opening = shaper.first_chunk()
        unsaid = b"" if opening is None else encode_chunk(opening)
        try:
            while isinstance(event, Delta):
                if event.text or event.thoughts:
                    yield unsaid + shaper.delta_chunks(event.thoughts, event.text)
                    unsaid = b""
                event = await anext(events)
        except ApiError as error:
            yield unsaid + encode_chunk(error.body().model_dump(mode="json"))
            return
        yield unsaid + encode_chunk(shaper.finish_chunk(event.finish_reason))
        if usage:
            yield encode_chunk(shaper.usage_chunk(event.usage))
        yield DONE
