"""Liveness and readiness, which are open and tell nothing about requests, and metrics, which are not."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from model_worker.access import require_metrics
from model_worker.worker import Worker
from service_kit.route_docs import Answer, documented
from wire.probes import WorkerHealth, WorkerReady

router = APIRouter()
metrics_router = APIRouter(dependencies=[Depends(require_metrics)])


@router.get("/health")
@documented(
    "Probes",
    "Is the process alive",
    answer=Answer(json=WorkerHealth, others={503: "The engine has died, or makes no step although work waits."}),
    errors=(),
)
async def health(request: Request) -> Response:
    """200 while the process can still answer: also while it loads its model and while it drains."""
    worker: Worker = request.app.state.worker
    is_healthy = worker.is_healthy()
    body = {"status": "ok" if is_healthy else "stalled", "state": worker.state}
    return JSONResponse(body, status_code=200 if is_healthy else 503)


@router.get("/ready")
@documented(
    "Probes",
    "May it get traffic",
    answer=Answer(
        json=WorkerReady,
        others={503: "The model is being loaded, the engine has died, it drains, or it cannot register by a defect."},
    ),
    errors=(),
)
async def ready(request: Request) -> Response:
    """200 if a request sent now would be taken."""
    worker: Worker = request.app.state.worker
    headers = {} if worker.is_ready else {"Retry-After": "1"}
    return JSONResponse({"state": worker.state}, status_code=200 if worker.is_ready else 503, headers=headers)


@metrics_router.get("/metrics")
@documented("Probes", "Metrics for Prometheus", answer=Answer(text="text/plain"), errors=())
async def metrics(request: Request) -> Response:
    """Prometheus text format. On a worker with controllers it needs the worker token."""
    worker: Worker = request.app.state.worker
    return Response(worker.metrics.render(), media_type=CONTENT_TYPE_LATEST)
