"""Requests of other shapes as chat requests, whose errors name the fields of those shapes."""

from collections.abc import Mapping
from typing import Any

from wire.openai.names import Names
from wire.openai.requests import ChatCompletionRequest
from wire.strict_json import to_model
from wire.workers import GenerateRequest


def translated(fields: Mapping[str, Any], names: Names, request_id: str) -> GenerateRequest:
    """The request to a worker for the fields of a chat request.

    Raises ApiError INVALID_REQUEST or UNSUPPORTED_PARAMETER.
    """
    with names.of_the_client():
        return to_model(ChatCompletionRequest, fields).generate_request(request_id)
