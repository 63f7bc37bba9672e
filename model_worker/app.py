"""Composition root of the worker's HTTP side."""

from fastapi import APIRouter, Depends, FastAPI
from starlette.types import Scope

from model_worker.access import Credentials, require_user
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Engine
from model_worker.models import Models
from model_worker.routes import internal, probes, served_models
from model_worker.routes.openai import WorkerBackend, add_version_route
from model_worker.routes.service_doc import WORKER_DOC
from service_kit.app import bare_app
from service_kit.bodies import Bodies
from service_kit.cors import Cors, CrossOrigin
from service_kit.docs_page import add_api_docs
from service_kit.openai.routes import add_openai_routes
from service_kit.origins import Hosts, OriginGuard
from service_kit.request_ids import RequestIds
from service_kit.route_docs import Access
from service_kit.spellings import Spellings, plain_path


def create_app(
    settings: WorkerSettings,
    engine: Engine | None = None,
    *,
    models: Models | None = None,
    bodies: Bodies | None = None,
) -> FastAPI:
    """The app of one worker process.

    `engine`: of the only model; without it `app.state.models.start()` loads the models, until then the worker is
    "starting". `models`: the models themselves. `bodies`: how request bodies are read, by default up to the limit of
    the settings.
    """
    app = bare_app("Agon model worker")
    models = app.state.models = models or Models(settings, engine)
    credentials = app.state.credentials = Credentials.from_settings(settings)
    app.state.bodies = bodies or Bodies(settings.max_body_bytes)
    user = user_router(models, credentials, app.state.bodies)
    for router in (probes.router, probes.metrics_router, user, internal.router, served_models.router):
        app.include_router(router)
    routers: tuple[tuple[Access, APIRouter], ...] = (
        ("open", probes.router),
        ("user", user),
        ("worker", internal.router),
        ("worker", served_models.router),
        ("worker", probes.metrics_router),
    )
    add_api_docs(app, WORKER_DOC, routers, is_served=settings.api_docs)
    hosts = Hosts(settings.allowed_hosts, is_open_locally=settings.is_on_loopback and credentials.is_public)
    cross_origin = CrossOrigin(settings.cors_origins)
    app.add_middleware(Cors, cross_origin=cross_origin)
    app.add_middleware(OriginGuard, hosts=hosts, cross_origin=cross_origin)
    app.add_middleware(RequestIds)
    app.add_middleware(Spellings)
    return app


def user_router(models: Models, credentials: Credentials, bodies: Bodies) -> APIRouter:
    """The routes of those who may use the models."""
    router = APIRouter(dependencies=[Depends(require_user)])
    add_openai_routes(router, bodies, WorkerBackend(models, credentials))
    add_version_route(router)
    return router


def is_new_work(scope: Scope) -> bool:
    """Whether a request may be shed under overload (service_kit/shedding.py). Not those of a controller, which hold a
    lease."""
    return bool(scope["method"] == "POST" and plain_path(scope["path"]).startswith("/v1/"))
