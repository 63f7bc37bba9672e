"""What formats without JSON need to know of a function's JSON schema."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from engine.sampling_params import ToolFunction


def property_is_text(function: ToolFunction, key: str) -> bool:
    """Whether a parameter is a string and nothing else; a parameter that the schema does not know is one, too."""
    schema = parsed(function.parameters)
    properties = schema.get("properties")
    if not isinstance(properties, dict) or key not in properties:
        return True
    return is_text(resolved(schema, properties[key]))


def is_text(schema: Mapping[str, Any]) -> bool:
    """Whether a schema without references allows strings and nothing else, as far as one can see."""
    if "type" in schema:
        return bool(schema["type"] == "string")
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    return bool(values) and all(isinstance(value, str) for value in values)


def resolved(root: Mapping[str, Any], schema: object) -> Mapping[str, Any]:
    """The schema, or the definition that it refers to; empty for what is no schema."""
    for _ in range(8):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = root
        for part in reference[2:].split("/"):
            schema = schema.get(part) if isinstance(schema, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}


@lru_cache(256)
def parsed(parameters: str) -> Mapping[str, Any]:
    """The JSON schema of a function's parameters; the text has been checked before."""
    schema: Mapping[str, Any] = json.loads(parameters)
    return schema
