"""The routes that workers call (register, heartbeat, leave), and those behind the page that shows them."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from controller.access.addresses import Addresses
from controller.access.auth import Guard
from controller.routes.path_ids import WORKER_ID, WorkerInPath
from controller.routes.replies import json_reply
from controller.workers.joining import Joining
from controller.workers.pools import Pools
from controller.workers.registry import WorkerRegistry
from service_kit.bodies import Bodies
from service_kit.route_docs import Answer, documented
from wire.errors import ErrorCode
from wire.joining import JoinCheck, JoinReport
from wire.releases import RELEASE
from wire.workers import (
    HeartbeatReply,
    HeartbeatRequest,
    RegisterReply,
    RegisterRequest,
    WorkerPool,
    WorkerView,
)

REGISTER_EXAMPLE = {
    "boot_id": "boot-0001",
    "url": "http://127.0.0.1:8299",
    "card": {
        "name": "example",
        "revision": "0",
        "architecture": "none",
        "num_parameters": 0,
        "dtype": "bfloat16",
        "context_length": 2048,
    },
    "capacity": {"max_running": 1, "max_queued": 0, "kv_tokens": 2048},
    "version": RELEASE,
}


def add_internal_worker_routes(
    router: APIRouter, bodies: Bodies, registry: WorkerRegistry, joining: Joining, addresses: Addresses
) -> None:
    """Add the routes that workers call."""

    @router.post("/internal/workers/check")
    @documented(
        "Workers",
        "Check a worker's URL before the worker starts",
        request=JoinCheck,
        example={"url": "http://127.0.0.1:8299", "version": "0.1.0"},
        answer=JoinReport,
        errors=(),
    )
    async def check(request: Request) -> Response:
        """Asked by `agon join`, which answers the controller's call at the URL meanwhile. `forbidden`: the host of the
        URL is not among `AGON_WORKER_HOSTS`, or is a loopback address of another machine."""
        asked = await bodies.parse(request, JoinCheck)
        return json_reply(await joining.check(asked, is_from_here=addresses.is_this_machine(request)))

    @router.post("/internal/workers")
    @documented(
        "Workers",
        "Register a worker",
        request=RegisterRequest,
        example=REGISTER_EXAMPLE,
        answer=RegisterReply,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def register(request: Request) -> Response:
        """A worker is named after its URL: a restarted one replaces its predecessor and gets a higher epoch.
        `forbidden`: the host of the URL is not among `AGON_WORKER_HOSTS`, or is a loopback one of another machine."""
        asked = await bodies.parse(request, RegisterRequest)
        return json_reply(await registry.register(asked, is_from_here=addresses.is_this_machine(request)))

    @router.post("/internal/workers/{worker_id}/heartbeat")
    @documented(
        "Workers",
        "Renew a worker's lease",
        parameters=WORKER_ID,
        request=HeartbeatRequest,
        example={"epoch": 1, "state": "ready", "load": {"running": 0}},
        answer=HeartbeatReply,
        errors=(ErrorCode.STALE_EPOCH, ErrorCode.STORE_UNAVAILABLE),
    )
    async def heartbeat(request: Request, worker_id: WorkerInPath) -> Response:
        """Reports the worker's state and load. A worker that is silent for `AGON_WORKER_LEASE_S` gets no more work."""
        return json_reply(await registry.heartbeat(worker_id, await bodies.parse(request, HeartbeatRequest)))

    @router.delete("/internal/workers/{worker_id}")
    @documented(
        "Workers",
        "Take a worker off the register",
        parameters={**WORKER_ID, "epoch": "only if the worker is registered under this epoch"},
        answer=Answer(status=204),
        errors=(ErrorCode.STALE_EPOCH, ErrorCode.STORE_UNAVAILABLE),
    )
    async def leave(worker_id: WorkerInPath, epoch: int | None = None) -> Response:
        """A worker that is not registered is no error."""
        await registry.leave(worker_id, epoch)
        return Response(status_code=204)


def add_worker_list_route(router: APIRouter, guard: Guard, registry: WorkerRegistry) -> None:
    """Add the list of workers, with figures for the admin."""

    @router.get("/arena/workers")
    @documented("Workers", "List the live workers", answer=list[WorkerView], errors=())
    async def workers(request: Request) -> Response:
        """Model, state and capacity of every worker with a lease; with the admin token its load too, which would tell
        other visitors the models of a battle. With `AGON_PUBLIC_WORKERS=false` all of it needs the admin token."""
        views = registry.views()
        if not guard.is_admin(request):
            views = [view.without_figures() for view in views]
        return JSONResponse([view.model_dump(mode="json") for view in views])


def add_pools_route(router: APIRouter, pools: Pools) -> None:
    """Add the pictures of page pools; `router` is the admin's."""

    @router.get("/arena/pools")
    @documented("Workers", "Page pools of the live workers", answer=list[WorkerPool], errors=())
    async def worker_pools() -> Response:
        """One picture for each worker that has a page pool and answers in time."""
        return JSONResponse([view.model_dump(mode="json") for view in await pools.views()])
