"""Bounds on constraints, and JSON schemas that cannot be followed: both are refused before anything is compiled.

llguidance refuses keywords of current drafts that it does not know by name. Those of older drafts and of OpenAPI, which
it takes for annotations, are refused here. No torch, no tokenizer.
"""

import json
from collections.abc import Mapping
from typing import Any

from engine.errors import InvalidRequest

MAX_CHARS = 64 * 1024  #: of a schema, a grammar, a regular expression, a list of choices
MAX_DEPTH = 64  #: of nested objects and arrays in a schema
MAX_CHOICES = 1024

#: Keywords that would change what is valid, and that llguidance ignores.
_UNSUPPORTED = frozenset({"$recursiveAnchor", "disallow", "divisibleBy", "extends", "nullable"})
#: Keywords whose value is a mapping from names to schemas, so that its keys are no keywords.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
#: Keywords whose value is data.
_DATA = frozenset({"const", "enum", "default", "examples", "required"})


def refuse(reason: str) -> InvalidRequest:
    """The error for a constraint that cannot be served."""
    return InvalidRequest(f"constraint: {reason}", param="constraint")


def check_size(text: str) -> None:
    """Raise InvalidRequest for a text that is too long to be compiled in bounded time."""
    if len(text) > MAX_CHARS:
        raise refuse(f"at most {MAX_CHARS} characters, this one has {len(text)}")


def read_schema(text: str) -> Any:
    """The JSON schema in the text. Raises InvalidRequest if it is none, too large, or has unsupported keywords."""
    check_size(text)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refuse(f"the schema is no JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise refuse("a JSON schema is an object or a boolean")
    _check(schema, 1, are_names=False)
    return schema


def read_choices(text: str) -> list[str]:
    """The texts of a choice. Raises InvalidRequest."""
    check_size(text)
    try:
        choices = json.loads(text)
    except (ValueError, RecursionError):
        choices = None
    if not isinstance(choices, list) or not 1 <= len(choices) <= MAX_CHOICES:
        raise refuse(f"a choice is a list of 1 to {MAX_CHOICES} texts")
    if not all(isinstance(choice, str) and choice for choice in choices):
        raise refuse("a choice has only texts, none of them empty")
    return choices


def _check(value: Any, depth: int, *, are_names: bool) -> None:
    if depth > MAX_DEPTH:
        raise refuse(f"the schema is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, list):
        for entry in value:
            _check(entry, depth + 1, are_names=False)
    elif isinstance(value, Mapping):
        if not are_names:
            _check_bounds(value)
        for key, entry in value.items():
            if not are_names and key in _UNSUPPORTED:
                raise refuse(f"the keyword {key!r} is not supported")
            if are_names or key not in _DATA:
                _check(entry, depth + 1, are_names=not are_names and key in _NAMED)


def _check_bounds(schema: Mapping[str, Any]) -> None:
    """llguidance 1.9 lets 0 through where it is excluded and the other bound is nearer to it than 1."""
    for excluded, others, sign in (
        ("exclusiveMinimum", ("maximum", "exclusiveMaximum"), 1),
        ("exclusiveMaximum", ("minimum", "exclusiveMinimum"), -1),
    ):
        bounds = [schema.get(name) for name in others]
        is_near = any(isinstance(bound, int | float) and 0 < sign * bound < 1 for bound in bounds)
        if schema.get(excluded) == 0 and is_near:
            raise refuse(f"{excluded} of 0 is not supported where the other bound is nearer to it than 1")
