"""Reads the JSON files of a model folder, which may come from anywhere: bounded, and one clear line for what is wrong.

No torch, so that every part of the engine and the worker can use it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from engine.errors import CheckpointError

#: Largest file in bytes. Python's objects take up to 25 times as much memory as the text. The largest known files: a
#: tokenizer_config.json of 1.3 MB, an index of 9 MB for 92,000 tensors.
MAX_BYTES = 16 * 2**20
_MAX_QUOTED_CHARS = 80


def read_object(file: Path, max_bytes: int = MAX_BYTES) -> Mapping[str, Any]:
    """The JSON object in a file of at most max_bytes. Raises CheckpointError for a file that is larger or unreadable,
    nested too deep, holds NaN or infinity, or is no object."""
    content = _read(file, max_bytes)
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} must hold a JSON object")
    return content


def read_list(file: Path, max_bytes: int = MAX_BYTES) -> list[Any]:
    """The JSON array in a file. Raises CheckpointError as `read_object` does."""
    content = _read(file, max_bytes)
    if not isinstance(content, list):
        raise CheckpointError(f"{file} must hold a JSON array")
    return content


def _read(file: Path, max_bytes: int) -> object:
    try:
        size = file.stat().st_size
        if size > max_bytes:
            raise CheckpointError(f"{file} has {size} bytes, more than {max_bytes}")
        content: object = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} is not readable JSON: {error}") from error
    except RecursionError:
        raise CheckpointError(f"{file} is not readable JSON: it is nested too deep") from None
    return content


def quoted(value: object) -> str:
    """A value of a file, for an error message: on one line and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}..."


def some_of(names: list[str]) -> str:
    """The first three names and the number of the others, for an error message."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
