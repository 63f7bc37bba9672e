"""Encodes frozen dataclasses as bytes, for processes that run the same code: JSON of field values in order, without
names.

Nothing is executed or unpickled. When a codec is made, it reads from the annotations what a class may hold: numbers,
strings, bytes, booleans, None, literals, tuples, frozen sets and mappings of these, and further dataclasses. Any other
annotation raises TypeError at once, so a new field is either carried or refused, never dropped.
"""

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_Convert = Callable[[Any], Any]
#: Types that JSON carries unchanged. Floats keep their bits: Python writes the shortest text that reads back to them.
_PLAIN = (int, float, str, bool, type(None))
#: Number of values that are remembered: many times the number of requests that run at once.
_NUM_REMEMBERED = 1024


class Codec(Generic[T]):
    """Encodes and decodes values of one dataclass, and of all that it holds."""

    def __init__(self, kind: type[T], repeated: tuple[type, ...] = ()) -> None:
        """repeated: frozen dataclasses whose values occur in many messages; each value is converted once and
        remembered."""
        self._to_json, self._from_json = _converters(kind, repeated)

    def encode(self, value: T) -> bytes:
        """Raises TypeError for a value of another class."""
        return json.dumps(self._to_json(value), separators=(",", ":")).encode()

    def decode(self, message: bytes) -> T:
        """Raises ValueError for bytes that `encode` did not make."""
        try:
            value: T = self._from_json(json.loads(message))
        except (TypeError, IndexError, KeyError) as error:
            raise ValueError(f"no message of this version of the code: {error}") from error
        return value


def _converters(annotation: Any, repeated: tuple[type, ...]) -> tuple[_Convert, _Convert]:
    """Conversions to what JSON can carry, and back."""
    if annotation in _PLAIN or get_origin(annotation) is Literal:
        return _same, _same
    if annotation is bytes:
        return lambda value: value.decode("latin-1"), lambda text: text.encode("latin-1")
    if annotation in repeated:
        return _remembered(*_of_dataclass(annotation, repeated))
    if dataclasses.is_dataclass(annotation):
        return _of_dataclass(annotation, repeated)  # type: ignore[arg-type]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return _of_tuple(arguments, repeated)
    if origin is frozenset:
        to_json, from_json = _of_tuple((arguments[0], ...), repeated)
        return lambda values: to_json(sorted(values)), lambda values: frozenset(from_json(values))
    if origin is Mapping:
        return _of_mapping(arguments, repeated)
    if origin in (Union, types.UnionType):
        return _of_union(arguments, repeated)
    raise TypeError(f"there is no way to send {annotation}")


def _remembered(to_json: _Convert, from_json: _Convert) -> tuple[_Convert, _Convert]:
    """Conversions to a JSON text inside the JSON, and back: the receiver looks that text up."""

    @lru_cache(_NUM_REMEMBERED)
    def encode(value: Any) -> str:
        return json.dumps(to_json(value), separators=(",", ":"))

    @lru_cache(_NUM_REMEMBERED)
    def decode(text: str) -> Any:
        return from_json(json.loads(text))

    return encode, decode


def _of_dataclass(kind: type, repeated: tuple[type, ...]) -> tuple[_Convert, _Convert]:
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    if not all(field.init for field in dataclasses.fields(kind)):
        raise TypeError(f"{kind} has fields that its constructor does not take")
    converters = [_converters(hints[name], repeated) for name in names]
    # Most fields are plain, and a plan has hundreds of them: only the others are converted.
    encoders = [(index, encode) for index, (encode, _) in enumerate(converters) if encode is not _same]
    decoders = [(index, decode) for index, (_, decode) in enumerate(converters) if decode is not _same]
    read = attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]

    def to_json(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        if not encoders:
            return read(value)
        values = list(read(value))
        for index, encode in encoders:
            values[index] = encode(values[index])
        return values

    def from_json(values: Any) -> Any:
        if len(values) != len(names):
            raise ValueError(f"{kind.__name__} has {len(names)} fields here, {len(values)} where it was sent")
        for index, decode in decoders:
            values[index] = decode(values[index])
        return kind(*values)

    return to_json, from_json


def _of_tuple(arguments: tuple[Any, ...], repeated: tuple[type, ...]) -> tuple[_Convert, _Convert]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        to_json, from_json = _converters(arguments[0], repeated)
        if from_json is _same:  # thousands of token ids: JSON takes the tuple unchanged
            return _same, tuple
        return lambda values: [to_json(v) for v in values], lambda values: tuple([from_json(v) for v in values])
    pairs = [_converters(argument, repeated) for argument in arguments]

    def convert(which: int) -> _Convert:
        return lambda values: tuple(pair[which](value) for pair, value in zip(pairs, values, strict=True))

    return convert(0), convert(1)


def _of_mapping(arguments: tuple[Any, ...], repeated: tuple[type, ...]) -> tuple[_Convert, _Convert]:
    """As pairs: as an object, JSON would turn the keys into strings."""
    if any(_converters(argument, repeated) != (_same, _same) for argument in arguments):
        raise TypeError(f"there is no way to send a mapping of {arguments}")
    return lambda values: list(values.items()), dict


def _of_union(arguments: tuple[Any, ...], repeated: tuple[type, ...]) -> tuple[_Convert, _Convert]:
    """A union of plain types, or of one other type and None."""
    others = [argument for argument in arguments if argument not in _PLAIN]
    if not others:
        return _same, _same
    if len(others) > 1 or any(argument is not type(None) for argument in arguments if argument in _PLAIN):
        raise TypeError(f"there is no way to tell {arguments} apart")
    to_json, from_json = _converters(others[0], repeated)
    return (
        lambda value: None if value is None else to_json(value),
        lambda value: None if value is None else from_json(value),
    )


def _same(value: Any) -> Any:
    return value
