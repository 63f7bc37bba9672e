"""The prompts of `POST /v1/completions`: a text, a list of token ids, or a list of several of either kind."""

from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from wire.embeddings import MAX_INPUTS
from wire.openai.tolerance import invalid

MAX_PROMPTS = 256
_MAX_ID = 2**31

Prompt = str | tuple[int, ...]

_IDS_SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": _MAX_ID - 1}, "minItems": 1}
_TEXT_SCHEMA = {"type": "string", "minLength": 1}


def _schema(most: int) -> dict[str, Any]:
    return {
        "anyOf": [
            _TEXT_SCHEMA,
            _IDS_SCHEMA,
            {"type": "array", "items": _TEXT_SCHEMA, "minItems": 1, "maxItems": most},
            {"type": "array", "items": _IDS_SCHEMA, "minItems": 1, "maxItems": most},
        ],
        "description": f"a text, token ids, or up to {most} of either kind",
    }


def _prompts(value: Any, most: int = MAX_PROMPTS) -> tuple[Prompt, ...]:
    if isinstance(value, str):
        return (_text(value, ""),)
    if not isinstance(value, list):
        raise invalid("", "must be a string, a list of token ids, or a list of either")
    if not value:
        raise invalid("", "needs at least one prompt")
    if _is_number(value[0]):
        return (_ids(value, ""),)
    if len(value) > most:
        raise invalid("", f"holds at most {most} prompts")
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
Prompts = Annotated[tuple[Prompt, ...], BeforeValidator(_prompts), WithJsonSchema(_schema(MAX_PROMPTS))]
#: Likewise, of `POST /v1/embeddings`.
Inputs = Annotated[
    tuple[Prompt, ...],
    BeforeValidator(partial(_prompts, most=MAX_INPUTS)),
    WithJsonSchema(_schema(MAX_INPUTS)),
]
