"""How an embedding checkpoint makes a vector of hidden states: the modules of sentence-transformers in its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError
from engine.json_files import quoted, read_list, read_object
from engine.sampling_params import Pooling, PoolingParams

_MODULES = "modules.json"
_POOLING = "1_Pooling"  #: folder of the pooling module, unless modules.json names another one
_CONFIG = "config.json"
_FLAG = "pooling_mode_"
_POOLINGS: Mapping[str, Pooling] = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last"}


def read_pooling(folder: Path) -> PoolingParams:
    """The pooling of requests that name none: that of modules.json and of the pooling module's config.json, where the
    folder has them; otherwise the last token, normalised.

    With a modules.json, vectors are normalised if it lists Normalize. Raises CheckpointError for other modules than
    Transformer, Pooling and Normalize, and for other poolings than cls, mean and last.
    """
    has_modules = (folder / _MODULES).is_file()
    modules = _modules(folder) if has_modules else {}
    path = modules.get("Pooling", "") if has_modules else _POOLING
    file = folder / path / _CONFIG
    pooling: Pooling = "last"
    if path and (has_modules or file.is_file()):
        pooling = _pooling(f"{path}/{_CONFIG}", read_object(file))
    return PoolingParams(pooling, normalize=not has_modules or "Normalize" in modules)


def _modules(folder: Path) -> Mapping[str, str]:
    """The folder of each module by its kind."""
    modules: dict[str, str] = {}
    for entry in read_list(folder / _MODULES):
        kind, path = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(path, str):
            raise CheckpointError(f"{_MODULES}: every module needs a type and a path, got {quoted(entry)}")
        name = kind.rpartition(".")[2]
        if name not in ("Transformer", "Pooling", "Normalize"):
            raise CheckpointError(f"{_MODULES}: a module {quoted(name)} is not supported")
        if "\0" in path or Path(path).name != path:
            raise CheckpointError(f"{_MODULES}: path {quoted(path)} is no folder beside it")
        modules[name] = path
    return modules


def _pooling(name: str, config: Mapping[str, Any]) -> Pooling:
    """name: of the file, for errors."""
    modes = sorted(key.removeprefix(_FLAG) for key, value in config.items() if key.startswith(_FLAG) and value is True)
    if len(modes) != 1:
        raise CheckpointError(f"{name} must set one {_FLAG}* to true, not {len(modes)}")
    if modes[0] not in _POOLINGS:
        raise CheckpointError(f"{name}: {_FLAG}{modes[0]} is not supported; supported: {', '.join(_POOLINGS)}")
    return _POOLINGS[modes[0]]
