"""`POST /v1/chat/completions` and `POST /v1/completions`.

A request is answered with a proper status until its first token; a failure after that is one error event, without
[DONE].
"""

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from service_kit.bodies import Bodies
from service_kit.event_stream import EventStream, until_disconnect
from service_kit.openai.backend import Backend
from service_kit.openai.several import answers_of
from service_kit.route_docs import Answer, documented
from wire.answers import Delta, Finished
from wire.errors import ApiError
from wire.openai.names import Names
from wire.openai.replies import ChatCompletion, ChatCompletionChunk, TextCompletion, TextCompletionChunk
from wire.openai.requests import ChatCompletionRequest, CompletionRequest
from wire.openai.shape import AnswerHead
from wire.openai.shaping import StreamShaper, encode_chunk
from wire.openai.whole import WholeShaper
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
        request_id = secrets.token_hex(12)
        return await complete(request, body, request_id, [body.generate_request(request_id)])

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
        """OpenAI's completions: one or several prompts without a chat template. Streams as chat completions do."""
        body = await bodies.parse(request, CompletionRequest)
        request_id = secrets.token_hex(12)
        return await complete(request, body, request_id, body.generate_requests(request_id))

    async def complete(
        request: Request,
        body: ChatCompletionRequest | CompletionRequest,
        request_id: str,
        generates: Sequence[GenerateRequest],
    ) -> Response:
        shape = body.shape
        prefix = "chatcmpl-" if shape.kind == "chat" else "cmpl-"
        head = AnswerHead(prefix + request_id, body.model, int(time.time()))
        events = answers_of([partial(backend.answer, request, body.model, generate) for generate in generates])
        if not body.stream:
            async with aclosing(events):
                with body.names.of_the_client():
                    return JSONResponse(await until_disconnect(request, _whole(events, WholeShaper(shape, head))))
        chunks = _chunks(events, StreamShaper(shape, head), body.names)
        return EventStream(chunks, begins_with_event=True, stall_s=backend.stall_s)


async def _whole(events: AsyncGenerator[tuple[int, Delta | Finished], None], shaper: WholeShaper) -> dict[str, Any]:
    async for which, event in events:
        if isinstance(event, Finished):
            shaper.finished(which, event)
        else:
            shaper.delta(which, event)
    return shaper.completion()


async def _chunks(
    events: AsyncGenerator[tuple[int, Delta | Finished], None], shaper: StreamShaper, names: Names
) -> AsyncGenerator[bytes, None]:
    """ApiError before the first chunk, where the answer fails before its first event; after it the error is a chunk."""
    has_begun = False
    async with aclosing(events):
        try:
            async for which, event in events:
                has_begun = True
                if isinstance(event, Finished):
                    yield shaper.finished(which, event)
                elif chunk := shaper.delta(which, event):
                    yield chunk
        except ApiError as error:
            if not has_begun:
                raise names.renamed(error) from None
            yield shaper.opening() + encode_chunk(error.body().model_dump(mode="json"))
            return
        yield shaper.end() + DONE
