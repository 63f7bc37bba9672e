"""How request bodies meet what clients send beyond the served fields: null and empty mean absent, harmless fields are
dropped, and a field that would change the answer is refused with its name and the reason."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from wire.openai.fields import Accepted, Known

_EMPTY: tuple[Any, ...] = ("", [], {})


def is_nothing(value: object) -> bool:
    """Whether a value of JSON is null or empty."""
    return value is None or (isinstance(value, str | list | dict) and value in _EMPTY)


def refused(param: str, message: str) -> PydanticCustomError:
    """An UNSUPPORTED_PARAMETER for the field at `param`, relative to the model that is being validated."""
    return PydanticCustomError("unsupported", "{message}", {"message": message, "param": param})


def invalid(param: str, message: str) -> PydanticCustomError:
    """An INVALID_REQUEST for the field at `param`, relative to the model or field that is being validated."""
    return PydanticCustomError("invalid", "{message}", {"message": message, "param": param})


def without_unserved(value: Mapping[str, Any], known: Mapping[str, Known], served: Mapping[str, Any]) -> dict[str, Any]:
    """`value` without fields that ask for nothing. Raises the error for one that is refused; a field of no table stays,
    unless it is null or empty."""
    kept: dict[str, Any] = {}
    for name, item in value.items():
        if name in served:
            kept[name] = item
        elif is_nothing(item):
            continue
        elif (entry := known.get(name)) is None:
            kept[name] = item
        elif not isinstance(entry, Accepted) and not any(_is_same(item, neutral) for neutral in entry.neutral):
            raise refused(name, f"{name} is not supported: {entry.why}.")
    return kept


def _is_same(item: object, neutral: object) -> bool:
    """1 and true are different values of JSON, 1 and 1.0 are not."""
    return item == neutral and isinstance(item, bool) == isinstance(neutral, bool)


class Tolerant(BaseModel):
    """A part of a request's body that takes what clients are known to send."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    known: ClassVar[Mapping[str, Known]] = {}  #: fields that are not served
    may_be_empty: ClassVar[frozenset[str]] = frozenset()  #: optional fields whose empty values mean something

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        fields = cls.model_fields
        kept = without_unserved(value, cls.known, fields)
        return {
            name: item
            for name, item in kept.items()
            if not is_nothing(item) or name not in fields or fields[name].is_required() or name in cls.may_be_empty
        }
