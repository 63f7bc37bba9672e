"""Reads a checkpoint's config.json with types; the one place that complains about what it lacks."""

from collections.abc import Mapping
from typing import Any, TypeVar

from engine.errors import CheckpointError
from engine.kernels.operators import Activation, Operators
from engine.layers.mlp import activation_of

_T = TypeVar("_T")


class ConfigReader:
    """Typed look-ups in config.json (or an object inside it)."""

    def __init__(self, values: Mapping[str, Any], name: str = "config.json") -> None:
        self._values = values
        self._name = name

    def require(self, key: str, kind: type[_T]) -> _T:
        value = self._values.get(key)
        if value is None:
            raise CheckpointError(f"{self._name} has no {key}")
        return self._typed(key, value, kind)

    def get(self, key: str, kind: type[_T], default: _T) -> _T:
        """The default stands for a missing key and for null."""
        value = self._values.get(key)
        return default if value is None else self._typed(key, value, kind)

    def optional(self, key: str, kind: type[_T]) -> _T | None:
        value = self._values.get(key)
        return None if value is None else self._typed(key, value, kind)

    def section(self, key: str) -> "ConfigReader | None":
        """An object inside this one."""
        value = self._values.get(key)
        return None if value is None else ConfigReader(self._typed(key, value, dict), f"{self._name}: {key}")

    def expect(self, key: str, *accepted: object) -> None:
        """Refuse a checkpoint that wants something which the model code does not do; a missing key is fine."""
        value = self._values.get(key)
        if value is not None and value not in accepted:
            raise CheckpointError(f"{self._name}: {key} {value!r} is not supported, only {accepted[0]!r}")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def _typed(self, key: str, value: object, kind: type[_T]) -> _T:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)  # type: ignore[return-value]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise CheckpointError(f"{self._name}: {key} must be {kind.__name__}, got {value!r}")
        return value


def read_activation(config: ConfigReader, key: str, default: str, operators: Operators) -> Activation:
    name = config.get(key, str, default)
    activation = activation_of(name, operators)
    if activation is None:
        raise CheckpointError(f"config.json: {key} {name!r} is not supported")
    return activation
