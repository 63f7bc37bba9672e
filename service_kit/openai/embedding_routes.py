"""`POST /v1/embeddings`."""

import secrets

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service_kit.bodies import Bodies
from service_kit.event_stream import until_disconnect
from service_kit.openai.backend import Backend
from service_kit.route_docs import documented
from wire.openai.embeddings import EmbeddingList, EmbeddingRequest


def add_embedding_routes(router: APIRouter, bodies: Bodies, backend: Backend) -> None:
    """Add the route to `router`."""

    @router.post("/v1/embeddings")
    @documented(
        "Embeddings",
        "Make vectors of texts",
        request=EmbeddingRequest,
        example={"model": "raven", "input": ["What is 17 + 25?", "A sum"]},
        answer=EmbeddingList,
        errors=backend.errors,
    )
    async def embeddings(request: Request) -> Response:
        """OpenAI's embeddings: one vector for each input, pooled over the model's hidden states after its final norm.
        `dimensions` cuts it, and it is normalised afterwards."""
        body = await bodies.parse(request, EmbeddingRequest)
        wanted = body.embed_request(secrets.token_hex(12))
        reply = await until_disconnect(request, backend.embed(request, body.model, wanted))
        listed = EmbeddingList.of(reply, body.model, body.encoding_format)
        return Response(listed.model_dump_json(), media_type="application/json")
