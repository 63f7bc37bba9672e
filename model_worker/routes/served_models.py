"""For controllers only: the models of this process, which come and go."""

from fastapi import APIRouter, Depends, Request

from model_worker.access import require_worker
from model_worker.model_spec import ModelSpec
from model_worker.models import Models
from service_kit.bodies import Bodies
from service_kit.route_docs import Answer, documented
from wire.errors import ErrorCode
from wire.served_models import AddModel, NamedModel, ServedModel, ServedModels

router = APIRouter(prefix="/internal/models", dependencies=[Depends(require_worker)])

_EXAMPLE = {"name": "raven"}


@router.get("")
@documented("Models", "Models of this process", answer=ServedModels, errors=())
async def served(request: Request) -> ServedModels:
    """Each with its state, its memory and its answers."""
    return _models(request).view()


@router.post("", status_code=202)
@documented(
    "Models",
    "Add a model",
    request=AddModel,
    example={"name": "mine", "source": "demo_models/robin"},
    answer=Answer(json=ServedModel, status=202),
    errors=(ErrorCode.SHUTTING_DOWN,),
)
async def add(request: Request) -> ServedModel:
    """Begins to load it while the others answer; `GET /internal/models` tells when it is resident, or why it is not.
    `invalid_request`: the name is in use, or the source is no model, in the loader's words. A restart serves it, too,
    where the worker has `AGON_MODELS_FILE`."""
    asked = await _bodies(request).parse(request, AddModel)
    return await _models(request).add(ModelSpec(asked.name, asked.source))


@router.post("/remove", status_code=202)
@documented(
    "Models",
    "Remove a model",
    request=NamedModel,
    example=_EXAMPLE,
    answer=Answer(json=ServedModel, status=202),
    errors=(ErrorCode.MODEL_NOT_FOUND,),
)
async def remove(request: Request) -> ServedModel:
    """It takes nothing new, finishes its answers, and is gone then."""
    asked = await _bodies(request).parse(request, NamedModel)
    return await _models(request).remove(asked.name)


@router.post("/sleep")
@documented(
    "Models",
    "Let a model sleep",
    request=NamedModel,
    example=_EXAMPLE,
    answer=ServedModel,
    errors=(ErrorCode.MODEL_NOT_FOUND, ErrorCode.WORKER_TIMEOUT),
)
async def sleep(request: Request) -> ServedModel:
    """It finishes its answers and gives its memory back; the next request wakes it."""
    asked = await _bodies(request).parse(request, NamedModel)
    return await _models(request).sleep(asked.name)


@router.post("/wake")
@documented(
    "Models",
    "Wake a model",
    request=NamedModel,
    example=_EXAMPLE,
    answer=ServedModel,
    errors=(ErrorCode.MODEL_NOT_FOUND, ErrorCode.MODEL_ASLEEP, ErrorCode.NO_WORKER),
)
async def wake(request: Request) -> ServedModel:
    """Answers when it is in memory. The least recently used models sleep where the budget needs it (`AGON_MEMORY`)."""
    asked = await _bodies(request).parse(request, NamedModel)
    return await _models(request).wake(asked.name)


def _models(request: Request) -> Models:
    models: Models = request.app.state.models
    return models


def _bodies(request: Request) -> Bodies:
    bodies: Bodies = request.app.state.bodies
    return bodies
