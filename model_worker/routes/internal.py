"""For controllers only: one answer as a stream of tokens and text, and a look at the page pool."""

from collections.abc import AsyncGenerator
from typing import TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel

from model_worker.access import require_worker
from model_worker.engine_protocol import Piece
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
    errors=(ErrorCode.STALE_EPOCH, *ANSWER_ERRORS),
)
async def generate(request: Request) -> Response:
    """A stream of tokens and their text. With `resume_token_ids` it continues an answer that another replica began."""
    worker: Worker = request.app.state.worker
    asked = await _asked(request, GenerateRequest)
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
    errors=(ErrorCode.STALE_EPOCH, *ANSWER_ERRORS),
)
async def embed(request: Request) -> Response:
    """One vector for each input."""
    worker: Worker = request.app.state.worker
    asked = await _asked(request, EmbedRequest)
    reply = await until_disconnect(request, worker.embed(asked))
    return Response(reply.model_dump_json(), media_type="application/json")


@router.post("/tokens")
@documented(
    "Answers",
    "Tokens of a prompt, or their text",
    request=TokensRequest,
    example={"token_ids": [1, 2]},
    answer=TokensReply,
    errors=(ErrorCode.STALE_EPOCH, ErrorCode.NO_WORKER),
)
async def tokens(request: Request) -> TokensReply:
    """What `/tokenize` and `/detokenize` of a controller ask."""
    worker: Worker = request.app.state.worker
    asked = await _asked(request, TokensRequest)
    return await worker.tokens(asked)


@router.get("/pool")
@documented("Answers", "Look at the page pool", answer=PoolView, errors=(ErrorCode.NO_WORKER,))
async def pool(request: Request) -> PoolView:
    """Bytes and pages by state, and the pool in the order of its addresses."""
    worker: Worker = request.app.state.worker
    load = worker.engine.load()
    return PoolView(
        kv_bytes_used=load.kv_bytes_used,
        kv_bytes_evictable=load.kv_bytes_evictable,
        kv_bytes_total=load.kv_bytes_total,
        pages=load.pages,
        picture=await worker.engine.picture(),
    )


async def _asked(request: Request, model: type[Asked]) -> Asked:
    """The body of a request that is meant for this start of the worker. Raises ApiError."""
    worker: Worker = request.app.state.worker
    bodies: Bodies = request.app.state.bodies
    asked = await bodies.parse(request, model)
    if asked.epoch is not None and asked.epoch not in worker.epochs:
        raise ApiError(ErrorCode.STALE_EPOCH, "This worker is not the one that the request is meant for.")
    return asked


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
