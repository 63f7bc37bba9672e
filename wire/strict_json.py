"""Request bodies to models: strict JSON in, a validated model or an ApiError out.

These are refused, because they are not JSON or cannot be stored or sent back: NaN and infinities, lone surrogates, NUL
characters, integers beyond 64 bits, nesting deeper than MAX_DEPTH, anything that is not UTF-8."""

import json
import re
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from wire.errors import ApiError, ErrorCode

MAX_DEPTH = 32
#: A string, or what follows an opening quote that is never closed: no search starts twice at the same text, so the time
#: is linear in the body's length whatever it holds.
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")

Model = TypeVar("Model", bound=BaseModel)


def parse_json(body: bytes) -> Any:
    """Decode `body`; raises ApiError INVALID_JSON."""
    try:
        text = body.decode("utf-8")
        _check_depth(text)
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int, parse_float=_parse_float)
    except ApiError:
        raise
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ApiError(ErrorCode.INVALID_JSON, f"The body is not valid JSON: {error}.") from None
    _check_text(value)
    return value


def parse_model(model: type[Model], body: bytes) -> Model:
    """Decode and validate `body`; raises ApiError INVALID_JSON, INVALID_REQUEST or UNSUPPORTED_PARAMETER."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The body must be a JSON object.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _as_api_error(error) from None


def _as_api_error(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_input=False)[0]
    param = ".".join(str(part) for part in first["loc"] if not _is_union_tag(part)) or None
    if first["type"] == "extra_forbidden":
        return ApiError(ErrorCode.UNSUPPORTED_PARAMETER, f"The parameter {param!r} is not supported.", param=param)
    message = first["msg"].removeprefix("Value error, ")
    return ApiError(ErrorCode.INVALID_REQUEST, f"{param}: {message}" if param else message, param=param)


def _is_union_tag(part: int | str) -> bool:
    """Pydantic puts the tried branch of a union into the location: not a field that the client sent."""
    return isinstance(part, str) and re.fullmatch(r"[a-z_]+", part) is None


def _check_depth(text: str) -> None:
    """Before decoding, because the decoder itself recurses."""
    depth = 0
    for found in _BRACKETS.finditer(_STRINGS.sub("", text)):
        depth += 1 if found.group() in "[{" else -1
        if depth > MAX_DEPTH:
            raise ApiError(ErrorCode.INVALID_JSON, f"The body is nested deeper than {MAX_DEPTH} levels.")


def _check_text(value: Any) -> None:
    match value:
        case str():
            if _UNSTORABLE.search(value):
                raise ApiError(ErrorCode.INVALID_JSON, "Text must not contain lone surrogates or NUL characters.")
        case dict():
            for key, item in value.items():
                _check_text(key)
                _check_text(item)
        case list():
            for item in value:
                _check_text(item)


def _refuse_constant(name: str) -> NoReturn:
    raise ApiError(ErrorCode.INVALID_JSON, f"{name} is not a JSON number.")


def _parse_int(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise ApiError(ErrorCode.INVALID_JSON, "An integer does not fit into 64 bits.")
    return int(digits)


def _parse_float(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ApiError(ErrorCode.INVALID_JSON, "A number is too large.")
    return number
