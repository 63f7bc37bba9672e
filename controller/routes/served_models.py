"""Models that come and go: which worker process serves what, and what an administrator changes about it."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.admin.action_log import ActionLog, actor_of
from controller.routes.replies import json_reply
from controller.workers.served_models import ServedModelsOfWorkers
from service_kit.bodies import Bodies
from service_kit.route_docs import Answer, documented
from wire.admin import ActionName
from wire.errors import ApiError, ErrorCode
from wire.served_models import AdminActOnModel, AdminAddModel, AdminServed, ServedModel

_ERRORS = (
    ErrorCode.MODEL_NOT_FOUND,
    ErrorCode.NO_WORKER,
    ErrorCode.MODEL_ASLEEP,
    ErrorCode.WORKER_FAILED,
    ErrorCode.WORKER_TIMEOUT,
    ErrorCode.SHUTTING_DOWN,
    ErrorCode.STORE_UNAVAILABLE,
)
_ACTIONS: dict[str, ActionName] = {
    "sleep": "sleep_model",
    "wake": "wake_model",
    "remove": "remove_model",
    "move": "move_model",
}


def add_served_model_routes(
    router: APIRouter, bodies: Bodies, served: ServedModelsOfWorkers, actions: ActionLog, addresses: Addresses
) -> None:
    """Add all of them; `router` is the admin's."""

    @router.get("/arena/admin/served")
    @documented("Administration", "Models of the worker processes", answer=AdminServed, errors=())
    async def view() -> Response:
        """Each process that answers, with the state, memory and answers of its models."""
        return json_reply(await served.view())

    @router.post("/arena/admin/served")
    @documented(
        "Administration",
        "Add a model to a running arena",
        request=AdminAddModel,
        example={"name": "mine", "source": "demo_models/robin", "reason": "to be compared"},
        answer=Answer(json=ServedModel, status=202),
        errors=_ERRORS,
    )
    async def add(request: Request) -> Response:
        """Begins to load it in a worker process, which finds the source on its own machine; `GET /arena/admin/served`
        tells when it is resident, or why it is not. The process serves it after a restart, too, if it has
        `AGON_MODELS_FILE`, as in `agon up`. `invalid_request`: the name is in use, or the source is no model."""
        wanted = await bodies.parse(request, AdminAddModel)
        values = {"source": wanted.source, "worker": wanted.worker}
        await actions.append(actor_of(request, addresses), "add_model", wanted.name, values, wanted.reason)
        return json_reply(await served.add(wanted, wanted.worker), status=202)

    @router.post("/arena/admin/served/act")
    @documented(
        "Administration",
        "Sleep, wake, remove or move a model",
        request=AdminActOnModel,
        example={"name": "raven", "action": "sleep"},
        answer=AdminServed,
        errors=_ERRORS,
    )
    async def act(request: Request) -> Response:
        """In every worker process that serves it, or in `worker` alone. A model that sleeps has given back its memory
        and is woken by the next request; one that is removed finishes its answers first; one that moves is loaded in
        the process `to` first. Answers with what is served then."""
        wanted = await bodies.parse(request, AdminActOnModel)
        if wanted.action == "move" and wanted.to is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Where shall it move?", param="to")
        values = {name: value for name, value in (("worker", wanted.worker), ("to", wanted.to)) if value is not None}
        await actions.append(actor_of(request, addresses), _ACTIONS[wanted.action], wanted.name, values, wanted.reason)
        match wanted.action:
            case "sleep":
                await served.sleep(wanted.name, wanted.worker)
            case "wake":
                await served.wake(wanted.name, wanted.worker)
            case "remove":
                await served.remove(wanted.name, wanted.worker)
            case "move":
                await served.move(wanted.name, wanted.worker, wanted.to or "")
        return json_reply(await served.view())
