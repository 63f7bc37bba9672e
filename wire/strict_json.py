"""Request bodies to models: strict JSON in, a validated model or an ApiError out.

These are refused, because they are not JSON or cannot be stored or sent back: NaN and infinities, lone surrogates, NUL
characters, integers beyond 64 bits, nesting deeper than MAX_DEPTH, anything that is not UTF-8. A body with more than
MAX_CONTAINERS objects and arrays, MAX_VALUES values, or MAX_KEYS keys in one object is refused as well: no request that
is served needs them, and decoder and pydantic hold the interpreter while they make them, also in a thread. Lists in
body models need `fail_fast` for the same reason: otherwise pydantic collects an error for every item.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from wire.errors import STATUS, ApiError, ErrorCode

MAX_DEPTH = 32
MAX_CONTAINERS = 10_000
MAX_VALUES = 200_000
MAX_KEYS = 1_000

_MAX_PARAM_CHARS = 100  #: of a parameter's name in an error: the name may be as long as the body
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
#: Numbers that may be too large. Python code checks each number of such a body, which makes it several times slower.
_LONG_NUMBER = re.compile(rb"[0-9]{19}|[eE]\+?[0-9]{3}")
#: Escapes that may stand for characters of _UNSTORABLE. UTF-8 has no surrogates, and the decoder refuses a plain NUL.
_SUSPECT_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")

Model = TypeVar("Model", bound=BaseModel)


def parse_json(body: bytes) -> Any:
    """Decode `body`; raises ApiError INVALID_JSON, or INVALID_REQUEST for too many values or keys."""
    outside = _outside_strings(body)
    _check_brackets(outside)
    if outside.count(b",") > MAX_VALUES:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The body has more than {MAX_VALUES} values.")
    hooks: dict[str, Any] = {}
    if _LONG_NUMBER.search(outside):
        hooks = {"parse_int": _parse_int, "parse_float": _parse_float}
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_checked_object, **hooks)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ApiError(ErrorCode.INVALID_JSON, f"The body is not valid JSON: {error}.") from None
    if _SUSPECT_ESCAPE.search(body):
        _check_text(value)
    return value


def parse_model(model: type[Model], body: bytes, context: Any = None) -> Model:
    """Decode and validate `body`; raises ApiError INVALID_JSON, INVALID_REQUEST or the code that a validator
    of the model gives. `context`: what validators of the model read or write (Notes of wire/openai/tolerance.py)."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The body must be a JSON object.")
    return to_model(model, value, context)


def to_model(model: type[Model], fields: Mapping[str, Any], context: Any = None) -> Model:
    """Validate decoded fields; raises ApiError INVALID_REQUEST or the code that a validator gives."""
    try:
        return model.model_validate(fields, context=context)
    except ValidationError as error:
        raise _as_api_error(error) from None


def _as_api_error(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_input=False)[0]
    own = first.get("ctx", {}).get("param")  # a check of several fields, or inside a value, says where it failed
    location = [str(part) for part in first["loc"] if not _is_union_tag(part)]
    param = ".".join(location + ([own] if isinstance(own, str) and own else [])) or None
    if param is not None and len(param) > _MAX_PARAM_CHARS:
        param = param[:_MAX_PARAM_CHARS] + "..."
    if first["type"] == "extra_forbidden":
        return ApiError(ErrorCode.UNSUPPORTED_PARAMETER, f"The parameter {param!r} is not supported.", param=param)
    message = _message(first)
    if first["type"] in STATUS:
        return ApiError(ErrorCode(first["type"]), message, param=param)
    return ApiError(ErrorCode.INVALID_REQUEST, f"{param}: {message}" if param else message, param=param)


def _message(error: Any) -> str:
    """Pydantic's sentence, but for lists, which it calls tuples."""
    match error["type"], error.get("ctx", {}):
        case "too_short", {"min_length": least}:
            return f"needs at least {least} item{'s' * (least != 1)}"
        case "too_long", {"max_length": most}:
            return f"has more than {most} items"
        case "tuple_type", _:
            return "must be a list"
    return str(error["msg"]).removeprefix("Value error, ")


def _is_union_tag(part: int | str) -> bool:
    """Pydantic puts the tried branch of a union into the location: not a field that the client sent."""
    return isinstance(part, str) and re.fullmatch(r"[a-z_]+", part) is None


def _outside_strings(body: bytes) -> bytes:
    """What of `body` is outside of strings. Exact up to the first mistake in the JSON, where the decoder stops."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    return b"".join(plain.split(b'"')[::2])


def _check_brackets(outside: bytes) -> None:
    """Before decoding, because the decoder itself recurses. Looks at 2 * MAX_CONTAINERS brackets at most."""
    depth = num_containers = 0
    for bracket in outside.translate(None, _NOT_BRACKETS):
        if bracket in b"]}":
            depth -= 1
            if depth < 0:
                return  # not JSON: the decoder stops here, too
            continue
        depth += 1
        num_containers += 1
        if depth > MAX_DEPTH:
            raise ApiError(ErrorCode.INVALID_JSON, f"The body is nested deeper than {MAX_DEPTH} levels.")
        if num_containers > MAX_CONTAINERS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"The body has more than {MAX_CONTAINERS} objects and arrays.")


def _checked_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"An object of the body has more than {MAX_KEYS} keys.")
    return dict(pairs)


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
