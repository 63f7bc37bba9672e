"""Requests of other shapes as chat requests, whose errors name the fields of those shapes."""

from collections.abc import Mapping
from typing import Any

from wire.errors import ApiError
from wire.openai.requests import ChatCompletionRequest
from wire.strict_json import to_model
from wire.workers import GenerateRequest


def translated(fields: Mapping[str, Any], names: Mapping[str, str], request_id: str) -> GenerateRequest:
    """The request to a worker for the fields of a chat request. `names`: fields whose names the caller knows by others.

    Raises ApiError INVALID_REQUEST or UNSUPPORTED_PARAMETER.
    """
    try:
        return to_model(ChatCompletionRequest, fields).generate_request(request_id)
    except ApiError as error:
        raise _renamed(error, names) from None


def _renamed(error: ApiError, names: Mapping[str, str]) -> ApiError:
    first, dot, rest = (error.param or "").partition(".")
    if first not in names:
        return error
    param = names[first] + dot + rest
    return ApiError(error.code, error.message.replace(error.param or "", param), param=param)
