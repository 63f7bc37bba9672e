"""Arguments in Gemma's form (gemma.py) as a grammar: keys without quotes, texts between marks, no blanks."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from engine.errors import InvalidRequest
from engine.text.tool_calls.gemma import QUOTE
from engine.text.tool_calls.schemas import is_text, parsed, resolved

_MAX_DEPTH = 16
_KEY = re.compile(r"[\w.\-]+")
#: Keywords that are followed, or say nothing of values.
_KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs"),
        *("definitions", "description", "title", "default", "examples", "$schema"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    }
)
_SCALARS = frozenset({"integer", "number", "boolean", "null"})

Refuse = Callable[[str], InvalidRequest]


class Rules(Protocol):
    """Where rules are collected (grammars.py)."""

    def text(self, *parts: str) -> str:
        """These texts one after another; those that are special tokens as such."""
        ...

    def add(self, name: str, rule: str) -> str:
        """A rule; returns its name."""
        ...

    def json(self, name: str, schema: Mapping[str, Any]) -> str:
        """A JSON value of this schema."""
        ...


def gemma_arguments(rules: Rules, name: str, parameters: str, refuse: Refuse) -> str:
    """The name of the rule of an object of this JSON schema, which is JSON. Raises what `refuse` makes of the reason
    why the form cannot follow it."""
    root = parsed(parameters)
    return _value(rules, name, root, {"type": "object", **root}, refuse, 0)


def _value(rules: Rules, name: str, root: Mapping[str, Any], given: object, refuse: Refuse, depth: int) -> str:
    schema = resolved(root, given)
    if depth > _MAX_DEPTH:
        raise refuse("a schema that refers to itself")
    if unknown := sorted(schema.keys() - _KEYWORDS):
        raise refuse(f"the keyword {unknown[0]!r}")
    values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
    if values is not None:
        if not isinstance(values, list) or not values or any(isinstance(value, list | dict) for value in values):
            raise refuse("an enum of arrays or objects")
        return rules.add(name, " | ".join(_scalar(rules, value) for value in values))
    if is_text(schema):
        lengths = f"{{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}"
        return rules.add(name, f"{rules.text(QUOTE)} /[^<]{lengths}/ {rules.text(QUOTE)}")
    match schema.get("type"):
        case list(kinds) if kinds:
            return _any(rules, name, root, [{**schema, "type": kind} for kind in kinds], refuse, depth)
        case None if isinstance(schema.get("anyOf"), list):
            return _any(rules, name, root, schema["anyOf"], refuse, depth)
        case "object":
            return _object(rules, name, root, schema, refuse, depth)
        case "array" if "items" in schema:
            item = _value(rules, f"{name}_item", root, schema["items"], refuse, depth + 1)
            comma = rules.text(",")
            return rules.add(name, f"{rules.text('[')} ({item} ({comma} {item})*)? {rules.text(']')}")
        case str(kind) if kind in _SCALARS:
            return rules.json(name, schema)
    raise refuse("a value without a type")


def _any(rules: Rules, name: str, root: Mapping[str, Any], options: list[Any], refuse: Refuse, depth: int) -> str:
    written = [_value(rules, f"{name}_{i}", root, option, refuse, depth + 1) for i, option in enumerate(options)]
    return rules.add(name, " | ".join(written))


def _object(
    rules: Rules, name: str, root: Mapping[str, Any], schema: Mapping[str, Any], refuse: Refuse, depth: int
) -> str:
    """The properties in the order of the schema."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list) or set(required) - properties.keys():
        raise refuse("a required property without a schema")
    first = rest = '""'  # from a property on: with none before it, and with one, so that a comma comes first
    for place, (key, value) in reversed(list(enumerate(properties.items()))):
        if not _KEY.fullmatch(key):
            raise refuse(f"the property {key!r}")
        written = f"{rules.text(f'{key}:')} {_value(rules, f'{name}_{place}', root, value, refuse, depth + 1)} {rest}"
        is_required = key in required
        first = rules.add(f"{name}_from_{place}", written if is_required else f"{written} | {first}")
        more = f"{rules.text(',')} {written}"
        rest = rules.add(f"{name}_rest_{place}", more if is_required else f"{more} | {rest}")
    return rules.add(name, f"{rules.text('{')} {first} {rules.text('}')}")


def _scalar(rules: Rules, value: object) -> str:
    if not isinstance(value, str):
        return rules.text(json.dumps(value))
    return rules.text(QUOTE, value, QUOTE) if value else rules.text(QUOTE, QUOTE)
