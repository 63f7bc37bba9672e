"""`POST /v1/responses`: OpenAI's newer shape of a chat. Answers are not kept."""

import secrets
import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service_kit.bodies import Bodies, warn
from service_kit.openai.backend import Backend
from service_kit.openai.block_answers import respond
from service_kit.openai.translated import translated
from service_kit.route_docs import Answer, documented
from wire.responses.answer import ResponseAnswer
from wire.responses.chat_request import translation
from wire.responses.replies import EVENTS, ResponseObject
from wire.responses.requests import ResponsesRequest


def add_responses_route(router: APIRouter, bodies: Bodies, backend: Backend) -> None:
    """Add the route to `router`."""

    @router.post("/v1/responses")
    @documented(
        "Completions",
        "Answer a conversation of items",
        request=ResponsesRequest,
        example={"model": "raven", "input": "What is 17 + 25?"},
        answer=Answer(json=ResponseObject, events=EVENTS),
        errors=backend.errors,
    )
    async def responses(request: Request) -> Response:
        """OpenAI's responses, as agents use them: text, functions, reasoning. Nothing is kept, so `store` has no effect
        and the whole conversation is sent each time. A stream ends with `response.completed`, `response.incomplete` or,
        if the answer breaks off, `response.failed`."""
        body = await bodies.parse(request, ResponsesRequest)
        answer_id = secrets.token_hex(12)
        asked = translation(body)
        generate = translated(asked.fields, asked.names, answer_id)
        if asked.tools.hosted:
            warn(request, f"tools that are not run here were left out: {', '.join(sorted(set(asked.tools.hosted)))}")
        answer = ResponseAnswer(body, asked.tools, answer_id=answer_id, created=int(time.time()))
        events = backend.answer(request, body.model, generate)
        return await respond(request, events, answer, asked.names, stream=bool(body.stream), stall_s=backend.stall_s)
