"""Errors of the controller that are not answers to a client, and the one place where every error becomes an answer.

ControllerError
    ConfigurationError      the settings cannot work
    OwnershipLost           this controller no longer owns the turn that it is running
    ClientGone              the client went away before there was an answer

What a client shall read is a wire.errors.ApiError, raised where it is noticed.
"""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from controller.logs import log_event
from wire.errors import ApiError, ErrorCode

_logger = logging.getLogger(__name__)

_STARLETTE_CODES = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.METHOD_NOT_ALLOWED, 413: ErrorCode.REQUEST_TOO_LARGE}
_CLIENT_GONE_STATUS = 499  #: nobody reads it; it keeps the access count honest


class ControllerError(Exception):
    """Anything that goes wrong inside the controller."""


class ConfigurationError(ControllerError):
    """The settings cannot work; the message says what to set."""


class OwnershipLost(ControllerError):
    """Another process has ended the turn that this one was running."""


class ClientGone(ControllerError):
    """The client closed the connection before there was an answer."""


def error_response(error: ApiError) -> Response:
    headers = dict(error.headers)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error.body().model_dump(mode="json"), status_code=error.status, headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """Every answer of `app` that is not a success has the OpenAI shape."""

    async def on_api_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return error_response(error)

    async def on_client_gone(_: Request, __: Exception) -> Response:
        return Response(status_code=_CLIENT_GONE_STATUS)

    async def on_invalid_query(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        param = ".".join(str(part) for part in first["loc"][1:]) or None
        return error_response(ApiError(ErrorCode.INVALID_REQUEST, f"{param}: {first['msg']}", param=param))

    async def on_http_exception(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _STARLETTE_CODES.get(error.status_code)
        if code is None:
            code = ErrorCode.INVALID_REQUEST if error.status_code < 500 else ErrorCode.INTERNAL_ERROR
        response = error_response(ApiError(code, f"{error.detail}."))
        if error.headers:
            response.headers.update(error.headers)
        return response

    async def on_defect(request: Request, error: Exception) -> Response:
        route = request.scope.get("route")
        log_event(_logger, "internal_error", logging.ERROR, route=getattr(route, "path", None), error=repr(type(error)))
        return error_response(ApiError(ErrorCode.INTERNAL_ERROR, "The controller met an internal error."))

    app.add_exception_handler(ApiError, on_api_error)
    app.add_exception_handler(ClientGone, on_client_gone)
    app.add_exception_handler(RequestValidationError, on_invalid_query)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(Exception, on_defect)
