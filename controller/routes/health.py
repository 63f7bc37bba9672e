"""Is it alive, may it get traffic, what has it counted, which version is it."""

from importlib.metadata import version

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from controller.battles.turn_runner import TurnRunner
from controller.metrics import Metrics
from controller.store.store import Store
from controller.workers.routing_table import RoutingTable


def add_health_routes(router: APIRouter, store: Store, table: RoutingTable) -> None:
    """Add liveness, readiness and version."""

    @router.get("/health")
    async def health() -> Response:
        """The process runs; says nothing about what it needs."""
        return JSONResponse({"status": "ok"})

    @router.get("/ready")
    async def ready() -> Response:
        """200 when the store answers. Without models it is ready too: they come and go."""
        await store.ping()
        return JSONResponse({"status": "ready", "models": len(table.ready_models())})

    @router.get("/version")
    async def show_version() -> Response:
        return JSONResponse({"name": "agon", "version": version("agon")})


def add_metrics_route(router: APIRouter, metrics: Metrics, table: RoutingTable, runner: TurnRunner) -> None:
    """Add the scrape of `metrics`, with the gauges that are read at scrape time."""

    @router.get("/metrics")
    async def show_metrics() -> Response:
        metrics.workers.clear()
        for worker in table.live():
            metrics.workers.labels(worker.card.name, worker.state).inc()
        metrics.open_turns.set(runner.num_running)
        return Response(metrics.exposition(), media_type=CONTENT_TYPE_LATEST)
