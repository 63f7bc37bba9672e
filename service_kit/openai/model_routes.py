"""`GET /v1/models` and the entry of one model."""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from service_kit.openai.backend import Backend, find_model
from service_kit.route_docs import documented
from wire.anthropic.models import ModelInfo, ModelPage
from wire.errors import ErrorCode
from wire.openai.models import ModelList, ModelObject


def add_model_routes(router: APIRouter, backend: Backend) -> None:
    """Add the routes that tell of models to `router`."""

    @router.get("/v1/models")
    @documented("Models", "List the models that can be asked", answer=ModelList, errors=())
    async def models(request: Request) -> Response:
        """Sorted by name. In an arena, a model whose last worker left is not in the list; a worker that serves alone
        lists its one model, also while that is being loaded. A request with the header `anthropic-version` gets
        Anthropic's shape: `data` with `id`, `display_name` and `created_at`, all of it on one page."""
        found = list(backend.models())
        if _is_anthropic(request):
            return _json(ModelPage.of([ModelInfo.of(model) for model in found]))
        return _json(ModelList(data=found))

    @router.get("/v1/models/{model:path}")
    @documented(
        "Models",
        "Read one model",
        parameters={"model": "name of the model; it may hold slashes"},
        answer=ModelObject,
        errors=(ErrorCode.MODEL_NOT_FOUND,),
    )
    async def model(request: Request, model: str) -> Response:
        """The entry of one model in the list above."""
        found = find_model(backend, model)
        return _json(ModelInfo.of(found) if _is_anthropic(request) else found)


def _is_anthropic(request: Request) -> bool:
    return "anthropic-version" in request.headers


def _json(model: BaseModel) -> Response:
    return Response(model.model_dump_json(), media_type="application/json")
