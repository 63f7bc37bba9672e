"""Reads the header of a GGUF file (versions 2 and 3, little-endian): settings, and where each tensor lies. Bounded,
since a file may come from anywhere.
"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import CheckpointError
from engine.formats.gguf.blocks import BLOCKS, OTHER_TYPES, Block
from engine.json_files import quoted

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_COUNT = 2**20  #: settings, tensors, elements of a list
_MAX_DIMS = 4
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies in the file."""

    shape: tuple[int, ...]  #: the last size is that of rows of adjacent elements
    block: Block
    first: int  #: byte of the file
    num_bytes: int


class GgufFile:
    """The header of a file, and its content mapped into memory."""

    def __init__(self, path: Path) -> None:
        """Raises CheckpointError for a file that is damaged, or has data types that are not served."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        reader = _Reader(self._content, path)
        if reader.bytes(4) != _MAGIC:
            raise CheckpointError(f"{path} is no GGUF file")
        version = reader.number("I")
        if version not in _VERSIONS:
            raise CheckpointError(f"{path} is a GGUF file of version {version}; served: 2 and 3")
        num_tensors, num_settings = reader.count(), reader.count()
        settings: dict[str, Any] = {}
        for _ in range(num_settings):
            name = reader.text()
            settings[name] = reader.value(reader.number("I"))
        self.settings: Mapping[str, Any] = settings
        alignment = settings.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
            raise CheckpointError(f"{path}: general.alignment cannot be {quoted(alignment)}")
        entries = [self._entry(reader) for _ in range(num_tensors)]
        self.header_bytes = -(-reader.position // alignment) * alignment
        self.tensors: Mapping[str, GgufTensor] = {
            name: self._tensor(name, shape, kind, offset) for name, shape, kind, offset in entries
        }

    def rows(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor, not copied."""
        tensor = self.tensors[name]
        return np.frombuffer(self._content, np.uint8, tensor.num_bytes, tensor.first)

    def _entry(self, reader: "_Reader") -> tuple[str, tuple[int, ...], int, int]:
        name, num_dims = reader.text(), reader.number("I")
        if not 1 <= num_dims <= _MAX_DIMS:
            raise CheckpointError(f"{self.path}: tensor {quoted(name)} has {num_dims} dimensions")
        shape = tuple(int(reader.number("Q")) for _ in range(int(num_dims)))[::-1]
        return name, shape, int(reader.number("I")), int(reader.number("Q"))

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GgufTensor:
        block = BLOCKS.get(kind)
        if block is None:
            served = ", ".join(each.name for each in BLOCKS.values())
            theirs = OTHER_TYPES.get(kind, f"number {kind}")
            raise CheckpointError(f"{self.path}: tensor {quoted(name)} has data type {theirs}; served: {served}")
        if shape[-1] % block.size:
            raise CheckpointError(
                f"{self.path}: rows of {shape[-1]} in {quoted(name)} are no whole {block.name} blocks"
            )
        num_bytes = math.prod(shape) // block.size * block.num_bytes
        first = self.header_bytes + offset
        if first + num_bytes > len(self._content):
            raise CheckpointError(f"{self.path} is cut: tensor {quoted(name)} ends behind the file")
        return GgufTensor(shape, block, first, num_bytes)


class _Reader:
    """Reads values one after another. Raises CheckpointError at the end of the file."""

    def __init__(self, content: mmap.mmap, path: Path) -> None:
        self._content = content
        self._path = path
        self.position = 0

    def bytes(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._content):
            raise CheckpointError(f"{self._path} is cut inside its header")
        part = self._content[self.position : end]
        self.position = end
        return part

    def number(self, kind: str) -> int:
        (value,) = struct.unpack(f"<{kind}", self.bytes(struct.calcsize(f"<{kind}")))
        return value  # type: ignore[no-any-return]

    def count(self) -> int:
        """A number of things that follow."""
        count = self.number("Q")
        if count > _MAX_COUNT:
            raise CheckpointError(f"{self._path} is damaged: it says that {count} values follow")
        return count

    def text(self) -> str:
        try:
            return self.bytes(self.count()).decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{self._path} is damaged: a name is no text") from None

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _LIST:
            item, count = self.number("I"), self.count()
            if item == _TEXT:
                return [self.text() for _ in range(count)]
            if item in _NUMBERS:
                layout = f"<{count}{_NUMBERS[item]}"
                return list(struct.unpack(layout, self.bytes(struct.calcsize(layout))))
        elif kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        raise CheckpointError(f"{self._path} is damaged: a setting has type {kind}")
