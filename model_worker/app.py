"""Composition root of the worker's HTTP side."""

from fastapi import APIRouter, FastAPI

from model_worker.access import Credentials
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Engine
from model_worker.routes import internal, openai, probes
from model_worker.routes.service_doc import WORKER_DOC
from model_worker.worker import Worker
from service_kit.app import bare_app
from service_kit.bodies import Bodies
from service_kit.docs_page import add_api_docs
from service_kit.route_docs import Access


def create_app(settings: WorkerSettings, engine: Engine | None = None, *, bodies: Bodies | None = None) -> FastAPI:
    """The app of one worker.

    `engine` may come later, by `app.state.worker.attach(engine)`: until then the worker is "starting". `bodies`: how
    request bodies are read, by default up to the limit of the settings.
    """
    app = bare_app("Agon model worker")
    app.state.worker = Worker(settings, engine)
    app.state.credentials = Credentials.from_settings(settings)
    app.state.bodies = bodies or Bodies(settings.max_body_bytes)
    for router in (probes.router, probes.metrics_router, openai.router, internal.router):
        app.include_router(router)
    routers: tuple[tuple[Access, APIRouter], ...] = (
        ("open", probes.router),
        ("user", openai.router),
        ("worker", internal.router),
        ("worker", probes.metrics_router),
    )
    add_api_docs(app, WORKER_DOC, routers, is_served=settings.api_docs)
    return app
