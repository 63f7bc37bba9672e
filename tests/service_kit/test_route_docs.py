"""The OpenAPI documents of controller and worker, made from the declarations at the routes."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.openapi.models import OpenAPI
from fastapi.openapi.utils import get_openapi
from pydantic import SecretStr

from controller.app import create_app as create_controller
from controller.config import Settings
from model_worker.app import create_app as create_worker
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from service_kit.docs_page import page
from service_kit.route_docs import ServiceDoc, openapi_document
from wire.errors import MEANINGS, STATUS, ErrorCode

METHODS = {"get", "post", "put", "delete"}


def controller(**given: Any) -> FastAPI:
    return create_controller(Settings(worker_token=SecretStr("w" * 16), admin_token=SecretStr("a" * 16), **given))


def worker(**given: Any) -> FastAPI:
    return create_worker(WorkerSettings(model="echo", engine="echo", **given), EchoEngine())


APPS = {"controller": controller, "worker": worker}


@pytest.fixture(params=APPS)
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return APPS[request.param]().openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def test_document_is_openapi_with_references_that_resolve(document: dict[str, Any]) -> None:
    assert json.loads(json.dumps(document)) == document
    OpenAPI.model_validate(document)
    assert document["openapi"].startswith("3.1.")
    for reference in references(document):
        head, _, name = reference.rpartition("/")
        assert head == "#/components/schemas"
        assert name in document["components"]["schemas"]
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for method, path, operation in operations(document):
        assert method in METHODS
        in_path = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
        assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_every_operation_says_what_it_takes_and_gives(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["x-access"] in document["x-access"], where
        statuses = {int(status) for status in operation["responses"]}
        assert statuses & {200, 201, 202, 204}, where
        assert 500 in statuses, where
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert content["schema"], where
        for status, response in operation["responses"].items():
            codes = response.get("x-codes", ())
            assert all(STATUS[ErrorCode(code)] == int(status) for code in codes), where


def test_every_error_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ErrorCode)


def test_a_route_without_a_declaration_is_an_error() -> None:
    router = APIRouter()

    @router.get("/silent")
    async def silent() -> None: ...

    service = ServiceDoc(title="Test", about="", server="http://test", access={"open": "none"})
    with pytest.raises(LookupError, match="/silent"):
        openapi_document(service, [("open", router)])


@pytest.mark.parametrize("name", APPS)
async def test_document_and_page_are_behind_a_switch(name: str) -> None:
    for is_on, status in ((False, 404), (True, 200)):
        app = APPS[name](api_docs=is_on)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            answers = [await client.get(path) for path in ("/openapi.json", "/docs")]
        assert [answer.status_code for answer in answers] == [status, status]
        if is_on:
            assert answers[0].json() == app.openapi()
            for path in app.openapi()["paths"]:
                assert path in answers[1].text


def test_page_loads_nothing_from_elsewhere(document: dict[str, Any]) -> None:
    text = page(document)
    for word in ("<script", "src=", "<link", "@import", "url("):
        assert word not in text
    for name in document["components"]["schemas"]:
        assert f'id="{name}"' in text


async def test_page_escapes_what_it_shows() -> None:
    app = controller()
    document = {**app.openapi(), "info": {"title": "<b>", "version": "1", "description": "&"}}
    assert "<title>&lt;b&gt;</title>" in page(document)


def test_every_router_of_a_service_is_in_its_document() -> None:
    """FastAPI's own walk over the app finds the same paths."""
    for make in APPS.values():
        app = make(api_docs=True)
        found = get_openapi(title="", version="", routes=app.routes)["paths"]
        ours = {(path, method) for method, path, _ in operations(app.openapi())}
        assert {(path, method) for path, methods in found.items() for method in methods} == ours
