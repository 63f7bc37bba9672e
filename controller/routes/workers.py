"""The routes that workers call (register, heartbeat, leave), and those behind the page that shows them."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from controller.routes.replies import json_reply
from controller.workers.pools import Pools
from controller.workers.registry import WorkerRegistry
from service_kit.bodies import Bodies
from wire.workers import HeartbeatRequest, RegisterRequest


def add_internal_worker_routes(router: APIRouter, bodies: Bodies, registry: WorkerRegistry) -> None:
    """Add the routes that workers call."""

    @router.post("/internal/workers")
    async def register(request: Request) -> Response:
        return json_reply(await registry.register(await bodies.parse(request, RegisterRequest)))

    @router.post("/internal/workers/{worker_id}/heartbeat")
    async def heartbeat(request: Request, worker_id: str) -> Response:
        return json_reply(await registry.heartbeat(worker_id, await bodies.parse(request, HeartbeatRequest)))

    @router.delete("/internal/workers/{worker_id}")
    async def leave(worker_id: str, epoch: int | None = None) -> Response:
        await registry.leave(worker_id, epoch)
        return Response(status_code=204)


def add_worker_page_routes(router: APIRouter, registry: WorkerRegistry, pools: Pools) -> None:
    """Add the routes behind the page of the workers."""

    @router.get("/arena/workers")
    async def workers() -> Response:
        return JSONResponse([view.model_dump(mode="json") for view in registry.views()])

    @router.get("/arena/pools")
    async def worker_pools() -> Response:
        return JSONResponse([view.model_dump(mode="json") for view in await pools.views()])
