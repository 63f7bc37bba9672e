"""`POST /v1/chat/completions` and `POST /v1/completions`.

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

from service_kit.bodies import Bodies
from service_kit.event_stream import EventStream, until_disconnect
from service_kit.openai.backend import Backend
from service_kit.route_docs import Answer, documented
from wire.answers import Delta, Finished
from wire.errors import ApiError
from wire.openai.replies import ChatCompletion, ChatCompletionChunk, TextCompletion, TextCompletionChunk
from wire.openai.requests import ChatCompletionRequest, CompletionRequest
from wire.openai.shaping import CompletionShaper, encode_chunk
from wire.workers import GenerateRequest

DONE = b"data: [DONE]\n\n"


def add_completion_routes(router: APIRouter, bodies: Bodies, backend: Backend) -> None:
    """Add both kinds of completions to `router`."""

    @router.post("/v1/chat/completions")
    @documented(
        "Completions",
        "Continue a chat",
        request=ChatCompletionRequest,
        example={"model": "raven", "messages": [{"role": "user", "content": "What is 17 + 25?"}]},
        answer=Answer(json=ChatCompletion, events={"message": ChatCompletionChunk}),
        errors=backend.errors,
    )
    async def chat_completions(request: Request) -> Response:
        """OpenAI's chat completions. With `stream` the answer is a stream of chunks that ends with `data: [DONE]`; a
        failure after the first token is one chunk with `error`, without `[DONE]`."""
        body = await bodies.parse(request, ChatCompletionRequest)
        return await complete(request, body, body.generate_request(secrets.token_hex(12)), "chat")

    @router.post("/v1/completions")
    @documented(
        "Completions",
        "Continue a text",
        request=CompletionRequest,
        example={"model": "raven", "prompt": "Once upon a time", "max_tokens": 32},
        answer=Answer(json=TextCompletion, events={"message": TextCompletionChunk}),
        errors=backend.errors,
    )
    async def completions(request: Request) -> Response:
        """OpenAI's completions: a prompt without a chat template. Streams as chat completions do."""
        body = await bodies.parse(request, CompletionRequest)
        return await complete(request, body, body.generate_request(secrets.token_hex(12)), "text")

    async def complete(
        request: Request,
        body: ChatCompletionRequest | CompletionRequest,
        generate: GenerateRequest,
        kind: Literal["chat", "text"],
    ) -> Response:
        prefix = "chatcmpl-" if kind == "chat" else "cmpl-"
        shaper = CompletionShaper(
            kind=kind, completion_id=prefix + generate.request_id, model=body.model, created=int(time.time())
        )
        events = backend.answer(request, body.model, generate)
        if not body.stream:
            async with aclosing(events):
                return JSONResponse(await until_disconnect(request, _whole(events, shaper)))
        return EventStream(_chunks(events, shaper, body.wants_usage), begins_with_event=True, stall_s=backend.stall_s)


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
