"""Typed access to a checkpoint's config.json; raises CheckpointError for what is missing or has the wrong type."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from engine.errors import CheckpointError
from engine.json_files import quoted
from engine.kernels.operators import Activation, Operators
from engine.layers.mlp import activation_of
from engine.models.config_bounds import BOUNDS

_T = TypeVar("_T")


class ConfigReader:
    """Typed look-ups in config.json (or an object inside it)."""

    def __init__(
        self,
        values: Mapping[str, Any],
        name: str = "config.json",
        *,
        outer: "ConfigReader | None" = None,
        served_context: int | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """outer: the object that this one lies in. served_context: tokens of a sequence at most; None: as many as the
        checkpoint supports. defaults: values of keys that are left out, of this object and of its text_config."""
        self._values = values
        self._defaults = defaults or {}
        self._name = name
        self.outer = outer
        self.served_context: int | None = served_context if outer is None else outer.served_context

    @property
    def values(self) -> Mapping[str, Any]:
        """Everything, unchecked."""
        return self._values

    def with_defaults(self, defaults: Mapping[str, Any]) -> "ConfigReader":
        """The same, with values for keys that are left out: what the architecture's class in transformers reads then. A
        null is not left out."""
        return ConfigReader(
            self._values, self._name, outer=self.outer, served_context=self.served_context, defaults=defaults
        )

    def _find(self, key: str) -> Any:
        return self._values[key] if key in self._values else self._defaults.get(key)

    def require(self, key: str, kind: type[_T]) -> _T:
        """The value of a key that must be there and not null."""
        value = self._find(key)
        if value is None:
            raise CheckpointError(f"{self._name} has no {key}")
        return self._typed(key, value, kind)

    def get(self, key: str, kind: type[_T], default: _T) -> _T:
        """The value; the default if the key is missing or null."""
        value = self._find(key)
        return default if value is None else self._typed(key, value, kind)

    def optional(self, key: str, kind: type[_T]) -> _T | None:
        """The value; None if the key is missing or null."""
        value = self._find(key)
        return None if value is None else self._typed(key, value, kind)

    def by_layer(self, key: str, num_layers: int) -> list[int]:
        """A number for each layer: the key holds one for all of them, or a list."""
        value = self._find(key)
        values = value if isinstance(value, list) else [value] * num_layers
        if len(values) < num_layers:
            raise CheckpointError(f"{self._name}: {key} has {len(values)} numbers for {num_layers} layers")
        return [self._typed(key, each, int) for each in values[:num_layers]]

    def section(self, key: str) -> "ConfigReader | None":
        """The object under this key; None if the key is missing or null."""
        value = self._find(key)
        if value is None:
            return None
        defaults = self._defaults if key == "text_config" else None
        return ConfigReader(self._typed(key, value, dict), f"{self._name}: {key}", outer=self, defaults=defaults)

    def expect(self, key: str, *accepted: object) -> None:
        """Refuse a checkpoint whose value the model code does not implement. A missing key and null are accepted."""
        value = self._find(key)
        if value is not None and value not in accepted:
            raise CheckpointError(f"{self._name}: {key} {quoted(value)} is not supported, only {accepted[0]!r}")

    def __contains__(self, key: str) -> bool:
        return key in self._values or key in self._defaults

    def _typed(self, key: str, value: object, kind: type[_T]) -> _T:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        accepted = (int, float) if kind is float else kind
        if not isinstance(value, accepted) or (kind in (int, float) and not is_number):
            raise CheckpointError(f"{self._name}: {key} must be {kind.__name__}, got {quoted(value)}")
        if is_number and key in BOUNDS:
            least, most = BOUNDS[key]
            if not least <= value <= most:  # type: ignore[operator]  # false for NaN and infinity, too
                raise CheckpointError(f"{self._name}: {key} must be from {least} to {most}, got {quoted(value)}")
        return float(value) if kind is float else value  # type: ignore[return-value, arg-type]


def read_model_dtype(config: ConfigReader) -> torch.dtype:
    """The data type that a checkpoint asks for: float32 if it says so, else bfloat16. Agon computes in no other."""
    name = config.get("dtype", str, config.get("torch_dtype", str, "bfloat16"))
    return torch.float32 if name == "float32" else torch.bfloat16


def read_activation(config: ConfigReader, key: str, default: str, operators: Operators) -> Activation:
    """The activation named under this key. Raises CheckpointError for one that is not implemented."""
    name = config.get(key, str, default)
    activation = activation_of(name, operators)
    if activation is None:
        raise CheckpointError(f"config.json: {key} {quoted(name)} is not supported")
    return activation
