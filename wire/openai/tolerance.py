"""How request bodies meet what clients send beyond the served fields: null and empty mean absent; a field that cannot
change the answer is dropped, and so is one that no table knows; a field that would change the answer is refused with
its name and the way out. Served fields are those of the request models, the others stand in the tables beside them
(fields.py here, in wire/responses and in wire/anthropic).

docs/api-fields.md is generated from both, and a test sends every field.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from wire.errors import ErrorCode

JsonValue = Any

_EMPTY: tuple[Any, ...] = ("", [], {})
_MAX_NOTED = 16  #: names of one request


@dataclass(frozen=True, slots=True)
class Accepted:
    """A field that cannot change the answer. Any value is taken."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that would change the answer. `neutral`: values that ask for nothing and are taken; null and empty ones
    always are. `example`: a value that is refused. `code`: of the error."""

    why: str
    neutral: tuple[JsonValue, ...] = ()
    example: JsonValue = "x"
    code: ErrorCode = ErrorCode.UNSUPPORTED_PARAMETER


Known = Accepted | Refused


def accepted(why: str, *names: str) -> dict[str, Known]:
    """Entries of fields that are accepted for one reason."""
    return dict.fromkeys(names, Accepted(why))


def served_by(request: "type[Tolerant]", path: str) -> dict[str, Known]:
    """Entries of another request's fields, which change the answer there: clients that mix two APIs are told so."""
    why = f"only {path} has it"
    neutral: Mapping[str, JsonValue] = {"n": 1, "best_of": 1}
    return {name: Refused(why, (neutral.get(name, False),), example=[2]) for name in names_of(request)}


@dataclass(slots=True)
class Notes:
    """What a request has that is left out and in no table: the names of its fields. The context of a validation."""

    unknown: dict[str, None] = field(default_factory=dict)

    def add(self, name: str) -> None:
        """Note a field, unless there are many already."""
        if len(self.unknown) < _MAX_NOTED:
            self.unknown[name] = None


def is_nothing(value: object) -> bool:
    """Whether a value of JSON is null or empty."""
    return value is None or (isinstance(value, str | list | dict) and value in _EMPTY)


def refused(param: str, message: str, code: ErrorCode = ErrorCode.UNSUPPORTED_PARAMETER) -> PydanticCustomError:
    """An error of this code for the field at `param`, relative to the model that is being validated."""
    return PydanticCustomError(code.value, "{message}", {"message": message, "param": param})


def invalid(param: str, message: str) -> PydanticCustomError:
    """An INVALID_REQUEST for the field at `param`, relative to the model or field that is being validated."""
    return PydanticCustomError("invalid", "{message}", {"message": message, "param": param})


@cache
def names_of(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """The served fields of a model by their names on the wire."""
    return {info.alias or attribute: info for attribute, info in model.model_fields.items()}


def check_refused(value: Mapping[str, Any], known: Mapping[str, Known]) -> None:
    """Raise the error for a field of `value` that is refused."""
    for name, item in value.items():
        entry = known.get(name)
        if isinstance(entry, Refused) and not is_nothing(item) and not any(_is_same(item, ok) for ok in entry.neutral):
            raise refused(name, f"{name} is not supported: {entry.why}.", entry.code)


def _is_same(item: object, neutral: object) -> bool:
    """1 and true are different values of JSON, 1 and 1.0 are not."""
    return item == neutral and isinstance(item, bool) == isinstance(neutral, bool)


class Tolerant(BaseModel):
    """A part of a request's body that takes what clients send."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    known: ClassVar[Mapping[str, Known]] = {}  #: fields that are not served
    may_be_empty: ClassVar[frozenset[str]] = frozenset()  #: optional fields whose empty values mean something

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict):
            return value
        served = names_of(cls)
        kept: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, item in value.items():
            if (known_field := served.get(name)) is None:
                others[name] = item
            elif known_field.is_required() or name in cls.may_be_empty or not is_nothing(item):
                kept[name] = item
        if others:
            check_refused(others, cls.known)
            if isinstance(info.context, Notes):
                for name in others.keys() - cls.known.keys():
                    info.context.add(name)
        return kept
