"""`POST /v1/messages`, Anthropic's shape of a chat, and the tokens of its prompt."""

import secrets
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from service_kit.bodies import Bodies
from service_kit.openai.backend import Backend
from service_kit.openai.block_answers import respond
from service_kit.openai.context_edits import edited
from service_kit.openai.translated import translated
from service_kit.route_docs import Answer, documented
from wire.anthropic.answer import MessageAnswer
from wire.anthropic.chat_request import prompt_translation, translation
from wire.anthropic.replies import EVENTS, MessageObject, TokenCount
from wire.anthropic.requests import CountTokensRequest, MessagesRequest
from wire.errors import ErrorCode
from wire.workers import TokensRequest

_EXAMPLE = {"model": "raven", "max_tokens": 64, "messages": [{"role": "user", "content": "What is 17 + 25?"}]}


def add_messages_routes(router: APIRouter, bodies: Bodies, backend: Backend) -> None:
    """Add the routes to `router`."""

    @router.post("/v1/messages")
    @documented(
        "Completions",
        "Answer a conversation of blocks",
        request=MessagesRequest,
        example=_EXAMPLE,
        answer=Answer(json=MessageObject, events=EVENTS),
        errors=(*backend.errors, ErrorCode.THREAD_NOT_FOUND),
        error_shape="anthropic",
    )
    async def messages(request: Request) -> Response:
        """Anthropic's messages: text, tools, thinking. The key may come as `x-api-key`. A stream ends with
        `message_stop` or, if the answer breaks off, with `error`. A last message of the assistant is the beginning of
        the answer."""
        body = await bodies.parse(request, MessagesRequest)
        answer_id = secrets.token_hex(12)
        body, edits = await edited(body, partial(num_tokens, request))
        fields, names = translation(body)
        generate = translated(fields, names, answer_id)
        answer = MessageAnswer(
            answer_id=answer_id, model=body.model, stop_sequences=body.stop_sequences, applied_edits=edits
        )
        events = backend.answer(request, body.model, generate)
        return await respond(request, events, answer, names, stream=bool(body.stream), stall_s=backend.stall_s)

    @router.post("/v1/messages/count_tokens")
    @documented(
        "Completions",
        "Count the tokens of a conversation of blocks",
        request=CountTokensRequest,
        example={name: value for name, value in _EXAMPLE.items() if name != "max_tokens"},
        answer=TokenCount,
        errors=(*backend.errors, ErrorCode.THREAD_NOT_FOUND),
        error_shape="anthropic",
    )
    async def count_tokens(request: Request) -> Response:
        """The tokens of the prompt that the chat template makes of it, system message and tools included. Models
        of other services do not tell their tokens."""
        body = await bodies.parse(request, CountTokensRequest)
        shortened, edits = await edited(body, partial(num_tokens, request))
        counted: dict[str, Any] = {"input_tokens": await num_tokens(request, shortened)}
        if edits is not None:
            counted["context_management"] = {"original_input_tokens": await num_tokens(request, body)}
        return JSONResponse(counted)

    async def num_tokens(request: Request, body: MessagesRequest | CountTokensRequest) -> int:
        """The tokens of the conversation's prompt. Raises ApiError."""
        fields, names = prompt_translation(body)
        generate = translated(fields, names, secrets.token_hex(12))
        with names.of_the_client():
            return len((await backend.tokens(request, body.model, TokensRequest(generate=generate))).token_ids)
