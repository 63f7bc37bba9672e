"""The prompts of `POST /v1/completions`: a text, a list of token ids, or a list of several of either kind."""

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from wire.openai.tolerance import invalid

MAX_PROMPTS = 256
_MAX_ID = 2**31

Prompt = str | tuple[int, ...]

_IDS_SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": _MAX_ID - 1}, "minItems": 1}
_TEXT_SCHEMA = {"type": "string", "minLength": 1}
_SCHEMA = {
    "anyOf": [
        _TEXT_SCHEMA,
        _IDS_SCHEMA,
        {"type": "array", "items": _TEXT_SCHEMA, "minItems": 1, "maxItems": MAX_PROMPTS},
        {"type": "array", "items": _IDS_SCHEMA, "minItems": 1, "maxItems": MAX_PROMPTS},
    ],
    "description": f"a text, token ids, or up to {MAX_PROMPTS} of either kind",
}


def _prompts(value: Any) -> tuple[Prompt, ...]:
    if isinstance(value, str):
        return (_text(value, ""),)
    if not isinstance(value, list):
        raise invalid("", "must be a string, a list of token ids, or a list of either")
    if not value:
        raise invalid("", "needs at least one prompt")
    if _is_number(value[0]):
        return (_ids(value, ""),)
    if len(value) > MAX_PROMPTS:
        raise invalid("", f"holds at most {MAX_PROMPTS} prompts")
    return tuple(
        _ids(item, str(index)) if isinstance(item, list) else _text(item, str(index))
        for index, item in enumerate(value)
    )


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise invalid(where, "must be a string or a list of token ids")
    if not value:
        raise invalid(where, "must not be empty: a prompt needs at least one token")
    return value


def _ids(value: list[Any], where: str) -> tuple[int, ...]:
    if not value:
        raise invalid(where, "must not be empty: a prompt needs at least one token")
    for index, token_id in enumerate(value):
        if not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id < _MAX_ID:
            raise invalid(f"{where}.{index}" if where else str(index), "must be a token id")
    return tuple(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


#: One or several prompts, as a tuple.
Prompts = Annotated[tuple[Prompt, ...], BeforeValidator(_prompts), WithJsonSchema(_SCHEMA)]
