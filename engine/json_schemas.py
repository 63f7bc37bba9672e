"""Rewrites JSON schemas into those that llguidance follows exactly; what cannot be is refused with keyword and path.

llguidance computes with numbers of double precision, so integers above 2^53 are refused in enum and const where they
are not exact, and bounds are moved inwards to the next exact number: every answer is valid, and of the values the few
between are missing. Integers without bounds get those of 64 bits. No torch, no tokenizer.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from typing import Any

from engine.errors import InvalidRequest

Refuse = Callable[[str], InvalidRequest]
Schema = dict[str, Any]

MAX_DEPTH = 64  #: of nested objects and arrays in a schema
_MOST_UNIQUE = 4  #: values that may be members of an array of unique ones: all orders of them are written down

#: Keywords that would change what is valid, and that llguidance does not follow.
_UNSUPPORTED = frozenset(
    [
        "$dynamicAnchor",
        "$dynamicRef",
        "$recursiveAnchor",
        "$recursiveRef",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "disallow",
        "divisibleBy",
        "else",
        "extends",
        "if",
        "maxContains",
        "minContains",
        "not",
        "nullable",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
#: Keywords whose value is a mapping from names to schemas, so that its keys are no keywords.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
#: Keywords whose value is data.
_DATA = frozenset({"const", "enum", "default", "examples", "required"})
#: Formats whose form is followed; others say nothing of what is valid.
_FORMATS = frozenset(["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"])
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment", "deprecated"})
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_COMBINING = frozenset({"allOf", "anyOf", "oneOf", "$ref"})

_EXACT = 2**53 - 1  #: up to here double precision has every integer, and the next one
_LARGEST = 2**63 - 1024  #: the largest number of double precision that is an integer of 64 bits
_DIGITS = 15  #: that every number of double precision keeps
_LARGEST_OF_DIGITS = _LARGEST // 10**4 * 10**4  #: the largest that has no more, below that
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
#: What pydantic writes for a Decimal, and the same without its look-ahead.
_PATTERNS = {
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$": r"^[+-]?(\d+\.?\d*|\.\d+)$",
    r"^(?!^[-+.]*$)[+-]?\d*\.?\d*$": r"^[+-]?(\d+\.?\d*|\.\d+)$",
}


def servable(schema: Any, refuse: Refuse) -> Any:
    """The schema as llguidance follows it. refuse: makes the error of a reason. Raises it."""
    return _Rewriter(schema, refuse).rewrite(schema, "#", 1)


class _Rewriter:
    def __init__(self, root: Any, refuse: Refuse) -> None:
        self._root = root
        self._refuse = refuse

    def rewrite(self, value: Any, path: str, depth: int) -> Any:
        """A schema, a list of schemas, or what else stands where one may be."""
        if depth > MAX_DEPTH:
            raise self._refuse(f"the schema is nested more than {MAX_DEPTH} levels deep")
        if isinstance(value, list):
            return [self.rewrite(entry, f"{path}/{index}", depth + 1) for index, entry in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        schema: Schema = {}
        for key, entry in value.items():
            here = f"{path}/{key}"
            if key in _UNSUPPORTED:
                raise self._refuse(f"the keyword {key!r} is not supported, at {path}")
            if key in _NAMED and isinstance(entry, Mapping):
                if depth + 1 > MAX_DEPTH:
                    raise self._refuse(f"the schema is nested more than {MAX_DEPTH} levels deep")
                schema[key] = {name: self.rewrite(each, f"{here}/{name}", depth + 2) for name, each in entry.items()}
            else:
                schema[key] = entry if key in _DATA else self.rewrite(entry, here, depth + 1)
        self._strings(schema, path)
        self._values(schema, path)
        self._numbers(schema, path)
        schema = self._unique(schema, path)
        self._names(schema, path)
        return schema

    def _strings(self, schema: Schema, path: str) -> None:
        if schema.get("format") not in _FORMATS:
            schema.pop("format", None)
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            schema["pattern"] = self._pattern(pattern, f"'pattern' at {path}")
        named = schema.get("patternProperties")
        if isinstance(named, Mapping):
            where = f"'patternProperties' at {path}"
            schema["patternProperties"] = {self._pattern(each, where): rule for each, rule in named.items()}

    def _pattern(self, pattern: str, where: str) -> str:
        pattern = _PATTERNS.get(pattern, pattern)
        if _LOOK_AROUND.search(pattern):
            raise self._refuse(f"look-ahead and look-behind are not supported, in {where}")
        return pattern

    def _values(self, schema: Schema, path: str) -> None:
        for key in ("const", "enum"):
            for number in _numbers_in(schema.get(key)):
                if isinstance(number, int) and abs(number) > _EXACT and _exact_at_most(abs(number)) != abs(number):
                    raise self._refuse(f"the integer {number} cannot be kept exact above 2^53, in {key!r} at {path}")

    def _numbers(self, schema: Schema, path: str) -> None:
        kinds = _kinds(schema)
        if kinds.isdisjoint(("integer", "number")):
            return
        is_integer = "number" not in kinds
        bounds = {key: schema[key] for key in (*_LOWER, *_UPPER) if _is_number(schema.get(key))}
        _check_zero(bounds, path, self._refuse)
        if any(abs(bound) > _EXACT for bound in bounds.values()):
            lower = [_inwards(bounds[key], is_integer, key, -1) for key in _LOWER if key in bounds]
            upper = [_inwards(bounds[key], is_integer, key, 1) for key in _UPPER if key in bounds]
            largest = _LARGEST if is_integer else _LARGEST_OF_DIGITS
            least, most = max([*lower, -largest]), min([*upper, largest])
            if least > most:
                raise self._refuse(f"no number between the bounds can be kept exact, at {path}")
            for sides, name, bound in ((_LOWER, "minimum", least), (_UPPER, "maximum", most)):
                rewritten = [key for key in sides if key in bounds and (is_integer or abs(bounds[key]) > _EXACT)]
                for key in rewritten:
                    del schema[key]
                if rewritten:
                    schema[name] = bound
        if is_integer and not schema.keys() & {"const", "enum", "multipleOf"}:
            schema |= {} if schema.keys() & _LOWER else {"minimum": -_LARGEST}
            schema |= {} if schema.keys() & _UPPER else {"maximum": _LARGEST}

    def _unique(self, schema: Schema, path: str) -> Schema:
        """uniqueItems as a choice of all arrays, where few values can be members."""
        is_unique = schema.pop("uniqueItems", False)
        if is_unique is not True or "array" not in _kinds(schema) or _at_most_one(schema.get("maxItems")):
            return schema
        values = _finite(self._resolved(schema.get("items")))
        is_plain = _kinds(schema) == {"array"} and "prefixItems" not in schema and schema.keys().isdisjoint(_COMBINING)
        if values is None or len(values) > _MOST_UNIQUE or not is_plain:
            raise self._refuse(
                f"the keyword 'uniqueItems' is followed only in arrays of up to {_MOST_UNIQUE} booleans or values of "
                f"an enum, not at {path}"
            )
        least, most = schema.pop("minItems", 0), min(schema.pop("maxItems", len(values)), len(values))
        schema.pop("items")
        schema["anyOf"] = [
            {"type": "array", "items": False, "minItems": size, "maxItems": size}
            | ({"prefixItems": [{"const": value} for value in order]} if order else {})
            for size in range(least, most + 1)
            for order in permutations(values, size)
        ]
        if not schema["anyOf"]:
            raise self._refuse(f"'uniqueItems' leaves fewer members than 'minItems' asks for, at {path}")
        return schema

    def _names(self, schema: Schema, path: str) -> None:
        """propertyNames as properties or patternProperties, and names of additional properties without escapes: a name
        of `properties` that is spelt with one would be additional."""
        names = self._resolved(schema.pop("propertyNames", True))
        others = schema.get("additionalProperties", True)
        if names is not True and not names.keys() <= _ANNOTATIONS | {"type"}:
            texts = _finite(names)
            is_free = "patternProperties" not in schema
            if texts is not None and is_free and all(isinstance(text, str) for text in texts):
                given = schema.get("properties", {})
                schema["properties"] = {text: given.get(text, others) for text in texts}
            elif names.keys() <= _ANNOTATIONS | {"type", "pattern"} and is_free and "properties" not in schema:
                schema["patternProperties"] = {names["pattern"]: others}
            else:
                raise self._refuse(f"this form of the keyword 'propertyNames' is not supported, at {path}")
            schema["additionalProperties"] = False
        elif others is not False and "object" in _kinds(schema) and schema.get("properties"):
            if "patternProperties" not in schema:
                is_any = others is True or others == {}
                pattern = "" if is_any else f"^{_other_than(list(schema['properties']))}$"
                schema["patternProperties"] = {pattern: others}
            elif not schema.keys().isdisjoint(_COMBINING):
                return
            schema["additionalProperties"] = False

    def _resolved(self, schema: Any) -> Any:
        """The schema, or the definition that it refers to."""
        for _ in range(8):
            reference = schema.get("$ref") if isinstance(schema, Mapping) else None
            if not isinstance(reference, str) or not reference.startswith("#"):
                break
            schema = self._root
            for part in reference[1:].split("/")[1:]:
                schema = schema.get(part) if isinstance(schema, Mapping) else None
        return schema


_LOWER = ("minimum", "exclusiveMinimum")
_UPPER = ("maximum", "exclusiveMaximum")


def _kinds(schema: Schema) -> set[str]:
    kinds = schema.get("type", list(_TYPES))
    return {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _at_most_one(most: object) -> bool:
    return isinstance(most, int | float) and most <= 1


def _numbers_in(value: object) -> Iterator[int | float]:
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _numbers_in(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _finite(schema: Any) -> list[Any] | None:
    """The values of a schema that has few of them and says nothing else."""
    if not isinstance(schema, Mapping) or not schema.keys() <= _ANNOTATIONS | {"type", "enum", "const"}:
        return None
    values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
    if values is None:
        return [True, False] if schema.get("type") == "boolean" else None
    if not isinstance(values, list) or any(isinstance(value, Mapping | list | float) for value in values):
        return None
    return list({(type(value), value): value for value in values}.values())


def _inwards(bound: int | float, is_integer: bool, key: str, sign: int) -> int | float:
    """The bound as an exact number: the next one inside the range. sign: 1: an upper bound, -1: a lower one."""
    if not math.isfinite(bound):
        return bound
    if not is_integer:
        if abs(bound) <= _EXACT:
            return bound
        scale: int = 10 ** max(0, len(str(abs(int(bound)))) - _DIGITS)
        return (math.floor(bound * sign) - key.startswith("exclusive")) // scale * scale * sign
    whole = math.floor(bound * sign) if isinstance(bound, float) else bound * sign
    if key.startswith("exclusive") and whole == bound * sign:
        whole -= 1
    return sign * _exact_at_most(whole)


def _exact_at_most(whole: int) -> int:
    """The largest integer of double precision and 64 bits that is not above this one."""
    if whole > _LARGEST:
        return _LARGEST
    exact = int(float(whole))
    return exact if exact <= whole else int(math.nextafter(exact, -math.inf))


def _check_zero(bounds: Mapping[str, int | float], path: str, refuse: Refuse) -> None:
    """llguidance 1.9 lets 0 through where it is excluded and the other bound is nearer to it than 1."""
    for excluded, others, sign in (("exclusiveMinimum", _UPPER, 1), ("exclusiveMaximum", _LOWER, -1)):
        if bounds.get(excluded) == 0 and any(0 < sign * bounds[key] < 1 for key in others if key in bounds):
            raise refuse(f"{excluded!r} of 0 is not supported where the other bound is nearer to it than 1, at {path}")


def _other_than(names: list[str]) -> str:
    """A regular expression of the texts that are none of these."""
    first = {name[0] for name in names if name}
    ways = [f"[^{''.join(map(_in_class, sorted(first)))}](?s:.)*" if first else "(?s:.)+"]
    ways += [
        f"{re.escape(letter)}{_other_than([name[1:] for name in names if name[:1] == letter])}"
        for letter in sorted(first)
    ]
    return f"(?:{'|'.join(ways)}){'' if '' in names else '?'}"


def _in_class(letter: str) -> str:
    return f"\\{letter}" if letter in "\\]^-[&~" else letter
