"""The one place where errors become HTTP answers, in every service of ours. They have the OpenAI shape, or the one that
a route declares.

An error that a client shall read is a wire.errors.ApiError, raised where it is detected. An error that only ends a
service, or a part of it, is an exception of that service's own errors.py.
"""

import logging
from collections.abc import Mapping
from typing import Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from service_kit.logs import log_event
from service_kit.request_ids import HEADER, request_id_of
from wire.anthropic.errors import AnthropicErrorBody, error_body
from wire.errors import ApiError, ErrorBody, ErrorCode

_logger = logging.getLogger(__name__)

_CLIENT_GONE_STATUS = 499  #: nginx's status for a client that closed the connection; no client reads it


ErrorShape = Literal["openai", "anthropic"]
#: The body of an error in each shape. A route function declares its own as the attribute `error_shape` (route_docs.py).
ERROR_BODIES: Mapping[ErrorShape, type[BaseModel]] = {"openai": ErrorBody, "anthropic": AnthropicErrorBody}


class ClientGone(Exception):
    """The client closed the connection before there was an answer."""


def error_response(error: ApiError, shape: ErrorShape = "openai") -> JSONResponse:
    """`error` as the body, status and headers of an answer."""
    headers = dict(error.headers)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = error.body() if shape == "openai" else error_body(error)
    return JSONResponse(body.model_dump(mode="json"), status_code=error.status, headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """Give every answer of `app` that is not a success the OpenAI shape and a stable code."""
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(ClientGone, _on_client_gone)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_bug)


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error, _shape_of(request))


async def _on_client_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=_CLIENT_GONE_STATUS)


async def _on_invalid_parameter(_: Request, error: Exception) -> Response:
    """A parameter of the query or the path that a route declares and FastAPI refuses."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    return error_response(ApiError(ErrorCode.INVALID_REQUEST, f"{param}: {first['msg']}", param=param))


async def _on_http_exception(_: Request, error: Exception) -> Response:
    """Refusals of the router itself: unknown paths and wrong methods."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            answer = ApiError(ErrorCode.NOT_FOUND, "There is nothing at this path.")
        case 405:
            answer = ApiError(ErrorCode.METHOD_NOT_ALLOWED, "This path does not take this method.")
        case 413:
            answer = ApiError(ErrorCode.REQUEST_TOO_LARGE, "The request is too large.")
        case status if status < 500:
            answer = ApiError(ErrorCode.INVALID_REQUEST, "The request is not well formed.")
        case _:
            answer = _bug()
    response = error_response(answer)
    response.headers.update(error.headers or {})
    return response


async def _on_bug(request: Request, error: Exception) -> Response:
    route = getattr(request.scope.get("route"), "path", None)
    request_id = request_id_of(request.scope)
    named = {} if request_id is None else {"request_id": request_id}
    log_event(_logger, "internal_error", logging.ERROR, exc_info=error, route=route, **named)
    response = error_response(_bug(), _shape_of(request))
    if request_id is not None:  # such an answer is made around all middleware
        response.headers[HEADER] = request_id
    return response


def _shape_of(request: Request) -> ErrorShape:
    """The shape that the matched route declares; OpenAI's where none was matched."""
    route = request.scope.get("route")
    shape: ErrorShape = getattr(route.endpoint, "error_shape", "openai") if isinstance(route, APIRoute) else "openai"
    return shape


def _bug() -> ApiError:
    return ApiError(ErrorCode.INTERNAL_ERROR, "The service met an internal error; its log says more.")
