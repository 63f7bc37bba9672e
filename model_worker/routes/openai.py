"""The OpenAI-compatible API of one model, complete enough to be used without a controller."""

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.metadata import version as distribution_version
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from model_worker.access import Credentials, require_user
from model_worker.engine_protocol import Conversation, Delta, Finished, Piece, PromptSource
from model_worker.worker import ANSWER_ERRORS, Worker
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
from wire.probes import WorkerVersion
from wire.sse import SseEvent, encode

router = APIRouter(dependencies=[Depends(require_user)])

COMPLETION_ERRORS = (ErrorCode.MODEL_NOT_FOUND, *ANSWER_ERRORS)

_DONE = encode(SseEvent("[DONE]"))


@router.get("/v1/models")
@documented("Models", "The model of this worker, as a list", answer=ModelList, errors=())
async def list_models(request: Request) -> ModelList:
    """A list of one, also while the model is being loaded."""
    return ModelList(data=[_model_object(request.app.state.worker)])


@router.get("/v1/models/{model:path}")
@documented(
    "Models",
    "Read the model",
    parameters={"model": "name of the model; it may hold slashes"},
    answer=ModelObject,
    errors=(ErrorCode.MODEL_NOT_FOUND,),
)
async def get_model(request: Request, model: str) -> ModelObject:
    """The name is the worker's alias: `agon serve NAME=PATH_OR_HUB_ID`."""
    worker: Worker = request.app.state.worker
    _check_model(worker, model)
    return _model_object(worker)


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
    """OpenAI's chat completions. With `stream` the answer is a stream of chunks that ends with `data: [DONE]`; a
    failure after the request was accepted is one chunk with `error`, without `[DONE]`."""
    bodies: Bodies = request.app.state.bodies
    asked = await bodies.parse(request, ChatCompletionRequest)
    return await _complete(
        request, asked, "chat", Conversation(asked.chat_messages(), asked.chat_template_kwargs or {})
    )


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
    bodies: Bodies = request.app.state.bodies
    asked = await bodies.parse(request, CompletionRequest)
    return await _complete(request, asked, "text", asked.prompt)


@router.get("/version")
@documented("Probes", "Which version runs", answer=WorkerVersion, errors=())
async def version(request: Request) -> dict[str, str]:
    """The version of the installed package."""
    return {"version": distribution_version("agon")}


async def _complete(
    request: Request,
    asked: ChatCompletionRequest | CompletionRequest,
    kind: Literal["chat", "text"],
    source: PromptSource,
) -> Response:
    worker: Worker = request.app.state.worker
    _check_model(worker, asked.model)
    completion_id = f"{'chatcmpl' if kind == 'chat' else 'cmpl'}-{uuid.uuid4().hex}"
    shaper = CompletionShaper(
        kind=kind, completion_id=completion_id, model=worker.settings.model_name, created=int(time.time())
    )
    credentials: Credentials = request.app.state.credentials
    answer = worker.answer(
        source, asked.sampling(), request_id=completion_id, cache_salt=credentials.cache_salt(request)
    )
    if asked.stream:
        await anext(answer)  # Accepted; a refusal is raised here and becomes an ordinary error response
        events = _events(answer, shaper, include_usage=asked.wants_usage)
        return EventStream(events, source=answer, stall_s=worker.settings.slow_client_s)
    async with aclosing(answer):
        return JSONResponse(await until_disconnect(request, _collect(answer, shaper)))


async def _events(
    answer: AsyncGenerator[Piece, None], shaper: CompletionShaper, *, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    first = shaper.first_chunk()
    if first is not None:
        yield encode_chunk(first)
    try:
        async for piece in answer:
            match piece:
                case Delta() if piece.text or piece.thoughts:
                    yield shaper.delta_chunks(piece.thoughts, piece.text)
                case Finished():
                    yield encode_chunk(shaper.finish_chunk(piece.finish_reason))
                    if include_usage:
                        yield encode_chunk(shaper.usage_chunk(piece.usage))
    except ApiError as error:
        yield encode(SseEvent(error.body().model_dump_json()))
        return
    yield _DONE


async def _collect(answer: AsyncGenerator[Piece, None], shaper: CompletionShaper) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    async for piece in answer:
        match piece:
            case Delta():
                texts.append(piece.text)
                thoughts.append(piece.thoughts)
            case Finished():
                return shaper.whole("".join(texts), piece.finish_reason, piece.usage, "".join(thoughts))
    raise AssertionError("an answer ends with Finished or an error")


def _check_model(worker: Worker, model: str) -> None:
    if model != worker.settings.model_name:
        raise ApiError(ErrorCode.MODEL_NOT_FOUND, "This worker does not serve that model.", param="model")


def _model_object(worker: Worker) -> ModelObject:
    load = worker.load()
    context_length = worker.engine.card.context_length if load is not None else None
    return ModelObject(id=worker.settings.model_name, created=worker.started_at, max_model_len=context_length)
