"""`POST /tokenize` and `POST /detokenize`."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service_kit.bodies import Bodies
from service_kit.openai.backend import Backend
from service_kit.route_docs import documented
from wire.openai.tokens import DetokenizeReply, DetokenizeRequest, TokenizeReply, TokenizeRequest
from wire.workers import TokensRequest


def add_token_routes(router: APIRouter, bodies: Bodies, backend: Backend) -> None:
    """Add both to `router`."""

    @router.post("/tokenize")
    @documented(
        "Tokens",
        "Tokens of a text or of a chat",
        request=TokenizeRequest,
        example={"model": "raven", "prompt": "Once upon a time"},
        answer=TokenizeReply,
        errors=backend.errors,
    )
    async def tokenize(request: Request) -> Response:
        """vLLM's tokenize: how the model reads a prompt. Nothing is generated."""
        body = await bodies.parse(request, TokenizeRequest)
        found = await backend.tokens(request, body.model, TokensRequest(generate=body.generate_request()))
        reply = TokenizeReply(
            count=len(found.token_ids),
            max_model_len=found.context_length,
            tokens=list(found.token_ids),
            token_strs=list(found.pieces) if body.return_token_strs else None,
        )
        return Response(reply.model_dump_json(), media_type="application/json")

    @router.post("/detokenize")
    @documented(
        "Tokens",
        "The text of tokens",
        request=DetokenizeRequest,
        example={"model": "raven", "tokens": [1, 2]},
        answer=DetokenizeReply,
        errors=backend.errors,
    )
    async def detokenize(request: Request) -> Response:
        """vLLM's detokenize."""
        body = await bodies.parse(request, DetokenizeRequest)
        found = await backend.tokens(request, body.model, TokensRequest(token_ids=body.tokens))
        return Response(DetokenizeReply(prompt=found.text).model_dump_json(), media_type="application/json")
