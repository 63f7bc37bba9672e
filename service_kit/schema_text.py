"""JSON schemas of an OpenAPI document in words: the rows that docs/api.md and the page /docs show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_BOUNDS = {
    "minimum": "{} or more",
    "exclusiveMinimum": "above {}",
    "maximum": "{} or less",
    "exclusiveMaximum": "below {}",
    "minLength": "{} characters or more",
    "maxLength": "{} characters or less",
    "minItems": "{} items or more",
    "maxItems": "{} items or less",
    "maxProperties": "{} entries or less",
    "pattern": "matches {}",
}


@dataclass(frozen=True)
class FieldRow:
    """One field of a JSON object. `default` is None for a required field."""

    name: str
    type: str
    default: str | None
    bounds: str
    meaning: str


def fields(schema: Mapping[str, Any]) -> list[FieldRow]:
    """The fields of an object's schema, in the order of the model."""
    required = schema.get("required", ())
    return [
        FieldRow(
            name=name,
            type=type_text(value),
            default=None if name in required else _json_text(value.get("default")),
            bounds=bounds_text(value),
            meaning=value.get("description", ""),
        )
        for name, value in schema.get("properties", {}).items()
    ]


def type_text(schema: Mapping[str, Any]) -> str:
    """The type in words; models by name."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_text(part) for part in schema["anyOf"]))
    if "const" in schema:
        return _json_text(schema["const"])
    if "enum" in schema:
        return " or ".join(_json_text(value) for value in schema["enum"])
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return "[" + ", ".join(type_text(item) for item in schema["prefixItems"]) + "]"
        case "array":
            return "list of " + _in_brackets(type_text(schema.get("items", {})))
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return "object of " + _in_brackets(type_text(schema["additionalProperties"]))
        case str(name):
            return name
    return "any"


def bounds_text(schema: Mapping[str, Any]) -> str:
    """Bounds of a value, those of the non-null branch where it may be null."""
    if "prefixItems" in schema:
        return ""  # the type says how many items there are
    found = [text.format(schema[name]) for name, text in _BOUNDS.items() if name in schema]
    for branch in schema.get("anyOf", ()):
        found += [bounds for bounds in [bounds_text(branch)] if bounds and bounds not in found]
    return ", ".join(found)


def _in_brackets(text: str) -> str:
    return f"({text})" if " or " in text else text


def _json_text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case list() | tuple():
            return "[" + ", ".join(_json_text(item) for item in value) + "]"
        case dict():
            return "{...}" if value else "{}"
    return str(value)
