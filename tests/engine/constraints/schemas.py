"""JSON schemas to constrain answers with: generated ones, and those of a checkout of JSON-Schema-Test-Suite."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FORMATS = ("date", "time", "date-time", "ipv4", "ipv6", "uuid", "email", "hostname", "duration")
_PATTERNS = ("^[a-c]{2,5}$", "x+y?", "^(on|off)$", r"^\d{3}-\d{2}$", "[^a]b")
_NAMES = ("a", "b", "name", "tags", "zürich", 'q"uote')

_TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["name", "children"],
    "additionalProperties": False,
}
_LIST = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "nickname": {"type": "string"},
        "age": {"type": "integer"},
        "home": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "lat": {"type": "number"}, "lon": {"type": "number"}},
            "required": ["lat", "lon"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def _answer(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"answer": schema}, "required": ["answer"], "additionalProperties": False}


#: Schemas that a model can go on with for ever.
ENDLESS: tuple[dict[str, Any], ...] = (
    _answer({"type": "number"}),
    _answer({"type": "integer"}),
    {"type": "number"},
    {"type": "integer", "minimum": 1000},
    _answer({"type": "number", "minimum": 0, "maximum": 1}),
    {"type": "string"},
    {"type": "string", "minLength": 20},
    {"type": "string", "pattern": "^[a-z]+( [a-z]+)*$"},
    _answer({"type": "string"}),
    {"type": "array", "items": {"type": "number"}},
    {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    {"type": "array", "items": {"type": "string"}, "minItems": 3},
    {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
    {"type": "array", "items": _PERSON},
    _PERSON,
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"type": "object"},
    {"$defs": {"tree": _TREE}, "$ref": "#/$defs/tree"},
    {"$defs": {"list": _LIST}, "$ref": "#/$defs/list"},
    {"$defs": {"tree": _TREE}, "anyOf": [{"$ref": "#/$defs/tree"}, {"type": "array", "items": {"type": "boolean"}}]},
)


def generated(count: int, seed: int = 7) -> Iterator[dict[str, Any]]:
    """So many schemas of the keywords that are served; all have an instance that is not long."""
    draw = random.Random(seed)
    for _ in range(count):
        yield _schema(draw, 3)


def of_suite(folder: Path) -> Iterator[Any]:
    """The distinct schemas of draft 2020-12, in the order of the suite's files."""
    seen: set[str] = set()
    root = folder / "tests" / "draft2020-12"
    for file in [*sorted(root.glob("*.json")), *sorted((root / "optional" / "format").glob("*.json"))]:
        for case in json.loads(file.read_text()):
            text = json.dumps(case["schema"], sort_keys=True)
            # Python's regular expressions, with which answers are judged, have no classes of Unicode.
            if text not in seen and r"\\p{" not in text:
                seen.add(text)
                yield case["schema"]


def _schema(draw: random.Random, depth: int) -> dict[str, Any]:
    kinds = ["integer", "number", "string", "boolean", "null", "enum", "const", "format", "pattern"]
    if depth:
        kinds += ["object", "object", "object", "array", "array", "anyOf", "allOf", "ref", "tuple"]
    kind = draw.choice(kinds)
    match kind:
        case "integer":
            low = draw.randint(-300, 300)
            return {"type": "integer", "minimum": low, "maximum": low + draw.randint(0, 500)}
        case "number":
            return {"type": "number", "exclusiveMinimum": draw.randint(-9, 0), "maximum": draw.choice((1, 7, 12.25))}
        case "string":
            least = draw.randint(0, 3)
            return {"type": "string", "minLength": least, "maxLength": least + draw.randint(0, 6)}
        case "enum":
            return {"enum": draw.sample([1, -2.5, "x", "ü\n", None, True, [1, "a"], {"k": []}], draw.randint(1, 4))}
        case "const":
            return {"const": draw.choice(["a/b", 17, {"x": [1, None]}, [], False])}
        case "format":
            return {"type": "string", "format": draw.choice(_FORMATS)}
        case "pattern":
            return {"type": "string", "pattern": draw.choice(_PATTERNS), "maxLength": 12}
        case "array":
            least = draw.randint(0, 2)
            items = _schema(draw, depth - 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + draw.randint(0, 2)}
        case "tuple":
            return {"type": "array", "prefixItems": [_schema(draw, depth - 1)], "items": False, "minItems": 1}
        case "anyOf":
            return {"anyOf": [_schema(draw, depth - 1) for _ in range(draw.randint(1, 3))]}
        case "allOf":
            return {"allOf": [_object(draw, 0), {"type": "object", "required": ["b"]}]}
        case "ref":
            # A reference inside a reference is looked up from the root of the whole schema: these have none.
            return {"type": "array", "items": {"type": "boolean"}, "maxItems": 3, "title": "flags", "default": []}
        case "object":
            return _object(draw, depth)
        case _:
            return {"type": kind}


def _object(draw: random.Random, depth: int) -> dict[str, Any]:
    names = draw.sample(_NAMES, draw.randint(1, 3))
    child = max(0, depth - 1)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _schema(draw, child) for name in [*names, "b"]},
        "required": draw.sample(names, draw.randint(0, len(names))),
        "additionalProperties": False,
    }
    if draw.random() < 0.2:
        schema["patternProperties"] = {"^x_": {"type": "integer", "minimum": 0, "maximum": 99}}
    if draw.random() < 0.2:
        schema["additionalProperties"] = {"type": "boolean"}
    return schema
