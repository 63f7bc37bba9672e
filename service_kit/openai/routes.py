"""All routes of the OpenAI API."""

from fastapi import APIRouter

from service_kit.bodies import Bodies
from service_kit.openai.backend import Backend
from service_kit.openai.completion_routes import add_completion_routes
from service_kit.openai.embedding_routes import add_embedding_routes
from service_kit.openai.model_routes import add_model_routes
from service_kit.openai.token_routes import add_token_routes


def add_openai_routes(router: APIRouter, bodies: Bodies, backend: Backend) -> None:
    """Add the routes of /v1 to `router`, which checks who may call them."""
    add_model_routes(router, backend)
    add_completion_routes(router, bodies, backend)
    add_embedding_routes(router, bodies, backend)
    add_token_routes(router, bodies, backend)
