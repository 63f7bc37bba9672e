"""Composition root of the worker's HTTP side."""

from fastapi import FastAPI

from model_worker.access import Credentials
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Engine
from model_worker.errors import install_error_handlers
from model_worker.routes import internal, openai, probes
from model_worker.worker import Worker


def create_app(settings: WorkerSettings, engine: Engine | None = None) -> FastAPI:
    """`engine` may come later, by `app.state.worker.attach(engine)`: until then the worker is "starting"."""
    # No schema and no documentation pages: a route that is not ours is a route that nobody guards.
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
    return app
