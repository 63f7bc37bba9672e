"""For controllers only: one answer as a stream of tokens and text, and a look at the page pool."""

from collections.abc import AsyncGenerator
from typing import TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel

from model_worker.access import require_worker
from model_worker.engine_protocol import Piece
from model_worker.models import Models
from model_worker.worker import ANSWER_ERRORS, Worker
from service_kit.bodies import Bodies
from service_kit.event_stream import EventStream, until_disconnect
from service_kit.route_docs import Answer, documented
from wire.answers import Delta, Finished
from wire.embeddings import EmbedReply, EmbedRequest
from wire.errors import ApiError, ErrorCode
from wire.sse import SseEvent, encode
from wire.workers import (
    GenerateDelta,
    GenerateFailed,
    GenerateFinished,
    GenerateRequest,
    PoolView,
    TokensReply,
    TokensRequest,
)

Asked = TypeVar("Asked", GenerateRequest, EmbedRequest, TokensRequest)

router = APIRouter(prefix="/internal", dependencies=[Depends(require_worker)])


@router.post("/generate")
@documented(
    "Answers",
    "Produce one answer",
    request=GenerateRequest,
    example={"request_id": "example", "messages": [{"role": "user", "content": "What is 17 + 25?"}]},
    answer=Answer(events={"delta": GenerateDelta, "finished": GenerateFinished, "failed": GenerateFailed}),
    errors=(ErrorCode.STALE_EPOCH, ErrorCode.MODEL_NOT_FOUND, *ANSWER_ERRORS),
)
async def generate(request: Request) -> Response:
    """A stream of tokens and their text. With `resume_token_ids` it continues an answer that another replica began."""
    worker, asked = await _asked(request, GenerateRequest)
    answer = worker.answer(asked)
    await anext(answer)  # Accepted; a refusal is raised here and becomes an ordinary error response
    return EventStream(_events(answer), source=answer, stall_s=worker.settings.slow_client_s)


@router.post("/embed")
@documented(
    "Answers",
    "Make vectors of texts",
    request=EmbedRequest,
    example={"request_id": "example", "inputs": ["What is 17 + 25?"]},
    answer=EmbedReply,
    errors=(ErrorCode.STALE_EPOCH, ErrorCode.MODEL_NOT_FOUND, *ANSWER_ERRORS),
)
async def embed(request: Request) -> Response:
    """One vector for each input."""
    worker, asked = await _asked(request, EmbedRequest)
    reply = await until_disconnect(request, worker.embed(asked))
    return Response(reply.model_dump_json(), media_type="application/json")


@router.post("/tokens")
@documented(
    "Answers",
    "Tokens of a prompt, or their text",
    request=TokensRequest,
    example={"token_ids": [1, 2]},
    answer=TokensReply,
    errors=(ErrorCode.STALE_EPOCH, ErrorCode.MODEL_NOT_FOUND, *ANSWER_ERRORS),
)
async def tokens(request: Request) -> TokensReply:
    """What `/tokenize` and `/detokenize` of a controller ask."""
    worker, asked = await _asked(request, TokensRequest)
    return await worker.tokens(asked)


@router.get("/pool")
@documented(
    "Answers",
    "Look at the page pool",
    parameters={"model": "which model of the worker; absent: its only one"},
    answer=PoolView,
    errors=(ErrorCode.MODEL_NOT_FOUND, ErrorCode.NO_WORKER),
)
async def pool(request: Request, model: str | None = None) -> PoolView:
    """Bytes and pages by state, and the pool in the order of its addresses. A model that sleeps has none."""
    models: Models = request.app.state.models
    worker = models.get(model)
    load = worker.load() or worker.engine.load()
    return PoolView(
        kv_bytes_used=load.kv_bytes_used,
        kv_bytes_evictable=load.kv_bytes_evictable,
        kv_bytes_total=load.kv_bytes_total,
        pages=load.pages,
        picture=await worker.engine.picture() if worker.is_resident else None,
    )


async def _asked(request: Request, model: type[Asked]) -> tuple[Worker, Asked]:
    """The body of a request, and the model that it is meant for, in this start of the worker. Raises ApiError."""
    models: Models = request.app.state.models
    bodies: Bodies = request.app.state.bodies
    asked = await bodies.parse(request, model)
    try:
        worker = models.get(asked.model)
    except ApiError:
        if asked.epoch is None:
            raise
        raise _stale() from None  # the registration that the caller has seen is no more
    if asked.epoch is not None and asked.epoch not in worker.epochs:
        raise _stale()
    return worker, asked


def _stale() -> ApiError:
    return ApiError(ErrorCode.STALE_EPOCH, "This worker is not the one that the request is meant for.")


async def _events(answer: AsyncGenerator[Piece, None]) -> AsyncGenerator[bytes, None]:
    seq = 0
    try:
        async for piece in answer:
            match piece:
                case Delta():
                    delta = GenerateDelta.of(seq, piece)
                    yield encode(SseEvent(delta.model_dump_json(exclude_defaults=True), event="delta"))
                    seq += 1
                case Finished():
                    end = GenerateFinished(finish_reason=piece.finish_reason, usage=piece.usage, queue_s=piece.queue_s)
                    yield _event("finished", end)
    except ApiError as error:
        yield _event("failed", GenerateFailed(error=error.body().error))


def _event(name: str, data: BaseModel) -> bytes:
    return encode(SseEvent(data.model_dump_json(), event=name))
