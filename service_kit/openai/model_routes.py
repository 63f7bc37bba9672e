"""`GET /v1/models` and the entry of one model."""

from fastapi import APIRouter
from fastapi.responses import Response

from service_kit.openai.backend import Backend, find_model
from service_kit.route_docs import documented
from wire.errors import ErrorCode
from wire.openai.models import ModelList, ModelObject


def add_model_routes(router: APIRouter, backend: Backend) -> None:
    """Add the routes that tell of models to `router`."""

    @router.get("/v1/models")
    @documented("Models", "List the models that can be asked", answer=ModelList, errors=())
    async def models() -> Response:
        """Sorted by name. In an arena, a model whose last worker left is not in the list; a worker that serves alone
        lists its one model, also while that is being loaded."""
        return _json(ModelList(data=list(backend.models())))

    @router.get("/v1/models/{model:path}")
    @documented(
        "Models",
        "Read one model",
        parameters={"model": "name of the model; it may hold slashes"},
        answer=ModelObject,
        errors=(ErrorCode.MODEL_NOT_FOUND,),
    )
    async def model(model: str) -> Response:
        """The entry of one model in the list above."""
        return _json(find_model(backend, model))


def _json(model: ModelList | ModelObject) -> Response:
    return Response(model.model_dump_json(), media_type="application/json")
