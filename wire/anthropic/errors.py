"""Errors in the shape that Anthropic's clients know."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.errors import ApiError, ErrorCode


class AnthropicErrorDetail(BaseModel):
    """`type` is the class of the error, `message` a sentence for people. `code` (an ErrorCode) and `param` are added to
    Anthropic's fields: they are those of the OpenAI shape. `details` has `error_code`, where clients act on it."""

    model_config = ConfigDict(frozen=True)

    type: str
    message: str
    code: str
    param: str | None = None
    details: dict[str, str] | None = Field(default=None, exclude_if=lambda details: details is None)


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
    code = error.code.value
    details = {"error_code": code} if error.code is ErrorCode.THREAD_NOT_FOUND else None
    detail = AnthropicErrorDetail(type=kind, message=error.message, code=code, param=error.param, details=details)
    return AnthropicErrorBody(error=detail)
