"""Bounds on constraints: what is larger, or no constraint at all, is refused before anything is compiled. No torch, no
tokenizer."""

import json
from typing import Any

from engine.errors import InvalidRequest
from engine.json_schemas import servable

MAX_CHARS = 64 * 1024  #: of a schema, a grammar, a regular expression, a list of choices
MAX_CHOICES = 1024


def refuse(reason: str) -> InvalidRequest:
    """The error for a constraint that cannot be served."""
    return InvalidRequest(f"constraint: {reason}", param="constraint")


def check_size(text: str) -> None:
    """Raise InvalidRequest for a text that is too long to be compiled in bounded time."""
    if len(text) > MAX_CHARS:
        raise refuse(f"at most {MAX_CHARS} characters, this one has {len(text)}")


def read_schema(text: str) -> Any:
    """The JSON schema in the text, as llguidance follows it. Raises InvalidRequest if it is none or cannot be
    followed."""
    check_size(text)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refuse(f"the schema is no JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise refuse("a JSON schema is an object or a boolean")
    return servable(schema, refuse)


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
