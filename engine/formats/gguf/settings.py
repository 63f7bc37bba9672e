"""The settings of a GGUF file: each is looked up behind the name of the file's architecture."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from engine.errors import CheckpointError
from engine.formats.gguf.file import GgufFile
from engine.models.config_bounds import BOUNDS
from engine.models.config_reader import ConfigReader

_T = TypeVar("_T")
#: What a key of config.json is: a value, or how it comes from a file.
Setting = object | Callable[["FileSettings"], object]


class FileSettings:
    """Typed look-ups among the settings of one architecture. Raises CheckpointError for what is missing or has the
    wrong type."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file = file
        self._architecture = architecture
        self._reader = ConfigReader(file.settings, file.path.name)
        self.num_layers = self.require("block_count", int) - self.get("nextn_predict_layers", int, 0)
        least, most = BOUNDS["num_hidden_layers"]
        if not least <= self.num_layers <= most:
            raise self.error(f"{self.num_layers} layers are no model")

    def require(self, key: str, kind: type[_T]) -> _T:
        """The value of a setting that must be there."""
        return self._reader.require(f"{self._architecture}.{key}", kind)

    def get(self, key: str, kind: type[_T], default: _T) -> _T:
        """The value, or the default."""
        return self._reader.get(f"{self._architecture}.{key}", kind, default)

    def optional(self, key: str, kind: type[_T]) -> _T | None:
        """The value; None if there is none."""
        return self._reader.optional(f"{self._architecture}.{key}", kind)

    def expect(self, key: str, *accepted: object) -> None:
        """As ConfigReader.expect."""
        self._reader.expect(f"{self._architecture}.{key}", *accepted)

    def by_layer(self, key: str) -> list[int]:
        """A whole number for each layer, where the file has one for all of them or a list."""
        return self._reader.by_layer(f"{self._architecture}.{key}", self.num_layers)

    def most(self, key: str) -> int:
        """The largest of by_layer: layers without such a part have 0."""
        return max(self.by_layer(key))

    def __contains__(self, key: str) -> bool:
        return f"{self._architecture}.{key}" in self._reader

    @property
    def norm_eps(self) -> float:
        """The epsilon of RMS norms; some files have it under the name of that of other norms."""
        found = self.optional("attention.layer_norm_rms_epsilon", float)
        return self.require("attention.layer_norm_epsilon", float) if found is None else found

    def has(self, tensor: str) -> bool:
        """Whether the file has a tensor of that name."""
        return tensor in self.file.tensors

    def has_any(self, ending: str) -> bool:
        """Whether some layer has a tensor whose name ends so."""
        return any(name.endswith(ending) for name in self.file.tensors)

    def rows(self, tensor: str) -> int:
        """The rows of a matrix."""
        found = self.file.tensors.get(tensor)
        if found is None or len(found.shape) != 2:
            raise self.error(f"there is no matrix {tensor}")
        return found.shape[0]

    def numbers(self, tensor: str) -> list[float]:
        """The values of a short list in float32."""
        found = self.file.tensors[tensor]
        if found.block.dtype != torch.float32 or len(found.shape) != 1 or found.shape[0] > _MOST_NUMBERS:
            raise self.error(f"{tensor} is no list of at most {_MOST_NUMBERS} numbers in float32")
        values: list[float] = torch.from_numpy(self.file.rows(tensor).copy()).view(torch.float32).tolist()
        return values

    def error(self, message: str) -> CheckpointError:
        """An error that names the file."""
        return CheckpointError(f"{self.file.path.name}: {message}")


_MOST_NUMBERS = 65_536


def whole(key: str, default: int | None = None) -> Setting:
    """A whole number. default: None: it must be there."""
    return _typed(key, int, default)


def real(key: str, default: float | None = None) -> Setting:
    """A number. default: None: it must be there."""
    return _typed(key, float, default)


def _typed(key: str, kind: type[_T], default: _T | None) -> Callable[[FileSettings], object]:
    if default is None:
        return lambda settings: settings.require(key, kind)
    return lambda settings: settings.get(key, kind, default)


def has_tensor(name: str) -> Setting:
    """Whether the file has that tensor."""
    return lambda settings: settings.has(name)


def has_any(ending: str) -> Setting:
    """As FileSettings.has_any."""
    return lambda settings: settings.has_any(ending)


def quotient(key: str, divisor: str) -> Setting:
    """One whole number over another."""
    return lambda settings: settings.require(key, int) // max(settings.require(divisor, int), 1)


def window(default: int | None = None) -> Setting:
    """The tokens of sliding windows; None: there are none."""
    return lambda settings: settings.get("attention.sliding_window", int, default or 0) or None


def layer_types(period: int, default_window: int = 0) -> Setting:
    """Which layers read a window: those that the file lists, or all but every period-th. default_window: tokens of a
    window where the file does not say them; 0: then no layer has one."""

    def listed(settings: FileSettings) -> list[str]:
        key = "attention.sliding_window_pattern"
        found = settings.optional(key, object)
        if not settings.get("attention.sliding_window", int, default_window):
            is_window = [False] * settings.num_layers
        elif isinstance(found, list):
            if len(found) < settings.num_layers:
                raise settings.error(f"{key} has {len(found)} values for {settings.num_layers} layers")
            is_window = [bool(value) for value in found[: settings.num_layers]]
        else:
            own = settings.get(key, int, period)
            is_window = [own < 1 or index % own < own - 1 for index in range(settings.num_layers)]
        return ["sliding_attention" if is_it else "full_attention" for is_it in is_window]

    return listed


def kinds_by_heads(attention: str, recurrent: str) -> Setting:
    """What each layer is: those without key heads have no attention."""

    def kinds(settings: FileSettings) -> list[str]:
        return [attention if heads else recurrent for heads in settings.by_layer("attention.head_count_kv")]

    return kinds


def resolved(setting: Setting, settings: FileSettings) -> Any:
    """The value of a key of config.json."""
    return setting(settings) if callable(setting) else setting
