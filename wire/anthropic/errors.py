"""Errors in the shape that Anthropic's clients know."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from wire.errors import ApiError


class AnthropicErrorDetail(BaseModel):
    """`type` is the class of the error, `message` a sentence for people. `code` (an ErrorCode) and `param` are added to
    Anthropic's fields: they are those of the OpenAI shape."""

    model_config = ConfigDict(frozen=True)

    type: str
    message: str
    code: str
    param: str | None = None


class AnthropicErrorBody(BaseModel):
    """`{"type": "error", "error": {...}}`, as a body and as the event `error` of a stream."""

    model_config = ConfigDict(frozen=True)

    type: Literal["error"] = "error"
    error: AnthropicErrorDetail


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(error: ApiError) -> AnthropicErrorBody:
    """`error` in this shape; its status stays what it is."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    detail = AnthropicErrorDetail(type=kind, message=error.message, code=error.code.value, param=error.param)
    return AnthropicErrorBody(error=detail)
