"""Liveness and readiness, which are open and tell nothing about requests, and metrics, which are not."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from model_worker.access import require_metrics
from model_worker.models import Models
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
    """200 while the process can still answer: also while it loads its models and while it drains."""
    models: Models = request.app.state.models
    is_healthy = models.is_healthy()
    body = {"status": "ok" if is_healthy else "stalled", "state": models.state}
    return JSONResponse(body, status_code=200 if is_healthy else 503)


@router.get("/ready")
@documented(
    "Probes",
    "May it get traffic",
    answer=Answer(
        json=WorkerReady,
        others={
            503: "Its models are being loaded, an engine has died, it drains, no controller has registered it yet, or "
            "it cannot register by a defect."
        },
    ),
    errors=(),
)
async def ready(request: Request) -> Response:
    """200 if a request sent now would be taken."""
    models: Models = request.app.state.models
    if models.is_ready:
        return JSONResponse({"state": models.state})
    body = WorkerReady(state=models.state, reason=models.registration_problem)
    return JSONResponse(body.model_dump(exclude_none=True), status_code=503, headers={"Retry-After": "1"})


@metrics_router.get("/metrics")
@documented("Probes", "Metrics for Prometheus", answer=Answer(text="text/plain"), errors=())
async def metrics(request: Request) -> Response:
    """Prometheus text format. On a worker with controllers it needs the worker token."""
    models: Models = request.app.state.models
    return Response(models.metrics.render(), media_type=CONTENT_TYPE_LATEST)
