"""Is it alive, may it get traffic, what has it counted, which version is it."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from controller.access.addresses import Addresses
from controller.battles.turn_runner import TurnRunner
from controller.metrics import Metrics
from controller.store.store import Store
from controller.workers.routing_table import RoutingTable
from service_kit.background import BackgroundTasks
from service_kit.route_docs import Answer, documented
from wire.errors import ApiError, ErrorCode
from wire.probes import Health, ProcessHealth, ProcessList, Ready, Version


def add_health_routes(
    router: APIRouter,
    store: Store,
    background: BackgroundTasks,
    table: RoutingTable,
    addresses: Addresses,
    processes_file: Path | None,
) -> None:
    """Add liveness, readiness and version. processes_file: written by the supervisor; None: there is none."""

    @router.get("/health")
    @documented("Probes", "Is the process alive", answer=Health, errors=())
    async def health() -> Response:
        """The process answers. Store and workers are not asked. Under `agon up` it also names the processes that are
        not ready; it is 200 in any case, because a restart of the controller would not help them."""
        answer = Health(status="ok", processes=_unready_processes(processes_file))
        return JSONResponse(answer.model_dump(exclude_none=True))

    @router.get("/ready")
    @documented("Probes", "May it get traffic", answer=Ready, errors=(ErrorCode.STORE_UNAVAILABLE, ErrorCode.NOT_READY))
    async def ready(request: Request) -> Response:
        """200 when the store answers and all background work succeeds. A controller without models is ready too:
        they come and go. A web UI learns here whether its visitors' addresses are believed."""
        await store.ping()
        if background.failing:
            raise ApiError(ErrorCode.NOT_READY, f"Background work fails: {', '.join(background.failing)}.")
        forwarded: Literal["believed", "ignored"] | None = None
        if "x-forwarded-for" in request.headers:
            forwarded = "believed" if addresses.is_from_proxy(request) else "ignored"
        answer = Ready(status="ready", models=len(table.ready_models()), forwarded_address=forwarded)
        return JSONResponse(answer.model_dump(exclude_none=True))

    @router.get("/version")
    @documented("Probes", "Which version runs", answer=Version, errors=())
    async def show_version() -> Response:
        """The version of the installed package."""
        return JSONResponse({"name": "agon", "version": version("agon")})


def add_metrics_route(router: APIRouter, metrics: Metrics, table: RoutingTable, runners: Sequence[TurnRunner]) -> None:
    """Add the scrape of `metrics`, with the gauges that are read at scrape time."""

    @router.get("/metrics")
    @documented("Probes", "Metrics for Prometheus", answer=Answer(text="text/plain"), errors=())
    async def show_metrics() -> Response:
        """Prometheus text format. It needs the admin token unless `AGON_PUBLIC_METRICS=true`: the latency of a single
        answer helps to guess the models of a battle."""
        metrics.workers.clear()
        for worker in table.live():
            metrics.workers.labels(worker.card.name, worker.state).inc()
        metrics.open_turns.set(sum(runner.num_running for runner in runners))
        return Response(metrics.exposition(), media_type=CONTENT_TYPE_LATEST)


def _unready_processes(file: Path | None) -> tuple[ProcessHealth, ...] | None:
    """None where the supervisor has written nothing that can be read. A few kB of the page cache, so it may be read on
    the event loop."""
    if file is None:
        return None
    try:
        listed = ProcessList.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None
    return tuple(process for process in listed.processes if process.state != "ready")
