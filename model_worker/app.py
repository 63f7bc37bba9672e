"""Composition root of the worker's HTTP side."""

from fastapi import APIRouter, FastAPI

from model_worker.access import Credentials
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Engine
from model_worker.errors import install_error_handlers
from model_worker.routes import internal, openai, probes
from model_worker.routes.service_doc import WORKER_DOC
from model_worker.worker import Worker
from service_kit.docs_page import add_api_docs
from service_kit.route_docs import Access


def create_app(settings: WorkerSettings, engine: Engine | None = None) -> FastAPI:
    """`engine` may come later, by `app.state.worker.attach(engine)`: until then the worker is "starting"."""
    # FastAPI's own schema and documentation pages stay off: the pages load scripts from other hosts; ours do not.
    # No telemetry of the framework's own: it may export exception messages, which quote what users write.
    app = FastAPI(
        title="Agon model worker",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.worker = Worker(settings, engine)
    app.state.credentials = Credentials.from_settings(settings)
    install_error_handlers(app)
    for router in (probes.router, openai.router, internal.router):
        app.include_router(router)
    routers: tuple[tuple[Access, APIRouter], ...] = (
        ("open", probes.router),
        ("user", openai.router),
        ("worker", internal.router),
    )
    add_api_docs(app, WORKER_DOC, routers, is_served=settings.api_docs)
    return app
