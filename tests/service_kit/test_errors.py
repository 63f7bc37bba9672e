import logging
from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Query

from service_kit.app import bare_app
from service_kit.errors import ClientGone
from service_kit.route_docs import documented
from wire.errors import ApiError, ErrorCode


@pytest.fixture
def app() -> FastAPI:
    app = bare_app("test")

    @app.get("/api-error")
    async def api_error(code: ErrorCode) -> None:
        raise ApiError(code, "It is so.", param="it")

    @app.get("/anthropic-error")
    @documented("Errors", "An error of another shape", answer=None, errors=(), error_shape="anthropic")
    async def anthropic_error() -> None:
        raise ApiError(ErrorCode.QUEUE_FULL, "It is so.")

    @app.get("/http-error")
    async def http_error(status: Annotated[int, Query(le=599)]) -> None:
        raise HTTPException(status, "what a visitor wrote", headers={"X-Kept": "yes"})

    @app.get("/bug")
    async def bug() -> None:
        raise ValueError("what a visitor wrote")

    @app.get("/gone")
    async def gone() -> None:
        raise ClientGone

    return app


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://test")


@pytest.mark.parametrize("code", ErrorCode)
async def test_an_api_error_is_answered_as_it_says(app: FastAPI, code: ErrorCode) -> None:
    error = ApiError(code, "It is so.", param="it")
    async with client_of(app) as client:
        answer = await client.get("/api-error", params={"code": code.value})
    assert (answer.status_code, answer.json()) == (error.status, error.body().model_dump())
    assert answer.headers.get("www-authenticate") == ("Bearer" if error.status == 401 else None)
    assert ("retry-after" in answer.headers) == (error.status in (429, 503))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (404, ErrorCode.NOT_FOUND),
        (405, ErrorCode.METHOD_NOT_ALLOWED),
        (413, ErrorCode.REQUEST_TOO_LARGE),
        (400, ErrorCode.INVALID_REQUEST),
        (418, ErrorCode.INVALID_REQUEST),
        (500, ErrorCode.INTERNAL_ERROR),
    ],
)
async def test_what_the_router_refuses_has_a_code_and_no_text_of_the_request(
    app: FastAPI, status: int, code: ErrorCode
) -> None:
    async with client_of(app) as client:
        answer = await client.get("/http-error", params={"status": status})
    assert answer.json()["error"]["code"] == code
    assert answer.headers["x-kept"] == "yes"
    assert "visitor" not in answer.text


async def test_a_parameter_of_the_query_that_is_wrong_is_named(app: FastAPI) -> None:
    async with client_of(app) as client:
        answer = await client.get("/http-error", params={"status": "many"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert answer.json()["error"]["param"] == "status"


async def test_a_bug_is_answered_without_details_and_logged_by_route_and_place(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(app) as client:
        answer = await client.get("/bug")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "visitor" not in answer.text
    [record] = caplog.records
    assert (record.getMessage(), record.levelno) == ("internal_error", logging.ERROR)
    assert record.fields == {"route": "/bug"}  # type: ignore[attr-defined]


async def test_a_client_that_is_gone_is_no_error(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(app) as client:
        assert (await client.get("/gone")).status_code == 499
    assert caplog.records == []


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/bug/"])
async def test_a_bare_app_serves_nothing_by_itself(app: FastAPI, path: str) -> None:
    async with client_of(app) as client:
        assert (await client.get(path)).status_code == 404


async def test_a_route_that_declares_another_shape_has_its_errors_in_it(app: FastAPI) -> None:
    async with client_of(app) as client:
        answer = await client.get("/anthropic-error")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    detail = {"type": "overloaded_error", "message": "It is so.", "code": "queue_full", "param": None}
    assert answer.json() == {"type": "error", "error": detail}
