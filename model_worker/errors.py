"""What ends a worker at start, and the one place where errors become HTTP answers.

StartError               one clear line on stderr and an exit code
 +-- BadSettings    2
 +-- BadCheckpoint  3    the model folder is missing, incomplete or damaged
 +-- EngineBroken   4    the engine died while serving
 +-- PortTaken      5
"""

from typing import ClassVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from wire.errors import ApiError, ErrorCode


class StartError(Exception):
    """The process cannot go on; the message is for the person who started it."""

    exit_code: ClassVar[int] = 1


class BadSettings(StartError):
    """Flags or environment do not make sense."""

    exit_code = 2


class BadCheckpoint(StartError):
    """The model cannot be loaded as it is."""

    exit_code = 3


class EngineBroken(StartError):
    """The engine stopped while serving: only a new process helps."""

    exit_code = 4


class PortTaken(StartError):
    """Another program listens there."""

    exit_code = 5


def error_response(error: ApiError) -> JSONResponse:
    return JSONResponse(error.body().model_dump(mode="json"), status_code=error.status, headers=error.headers)


async def _on_api_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    """What the router itself refuses: unknown paths and wrong methods."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            answer = ApiError(ErrorCode.NOT_FOUND, "There is nothing at this path.")
        case 405:
            answer = ApiError(ErrorCode.METHOD_NOT_ALLOWED, "This path does not take this method.")
        case status if status < 500:
            answer = ApiError(ErrorCode.INVALID_REQUEST, "The request is not well formed.")
        case _:
            answer = ApiError(ErrorCode.INTERNAL_ERROR, "The worker failed to answer.")
    response = error_response(answer)
    response.headers.update(error.headers or {})
    return response


async def _on_bug(_: Request, error: Exception) -> JSONResponse:
    return error_response(ApiError(ErrorCode.INTERNAL_ERROR, "The worker failed to answer; its log says more."))


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_bug)
