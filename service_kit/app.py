"""The FastAPI app that a service begins with."""

from typing import Any

from fastapi import FastAPI
from starlette.types import Lifespan

from service_kit.errors import install_error_handlers


def bare_app(title: str, *, lifespan: Lifespan[Any] | None = None) -> FastAPI:
    """An app without routes, whose errors have the OpenAI shape.

    It has no schema and no pages of FastAPI's own, which load scripts from other hosts (docs_page.py adds ours behind a
    switch), and no redirects from one spelling of a path to another.
    """
    app = FastAPI(
        title=title,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # FastAPI's OpenTelemetry exports exception messages, which quote what users write.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    install_error_handlers(app)
    return app
