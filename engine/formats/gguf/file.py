"""Reads the headers of a GGUF file (versions 2 and 3, little-endian): settings, and where each tensor lies. Bounded,
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
from engine.model_files import gguf_name

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_COUNT = 2**20  #: settings, tensors, elements of a list
_MAX_DIMS = 4
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 32
#: Settings of files in several parts.
_PART, _PARTS, _TENSORS = "split.no", "split.count", "split.tensors.count"
_MOST_PARTS = 99_999


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies."""

    shape: tuple[int, ...]  #: the last size is that of rows of adjacent elements
    block: Block
    part: int  #: of the file, from 0
    first: int  #: byte of that part
    num_bytes: int


class GgufFile:
    """The headers of a file, which may have several parts, and their contents mapped into memory. `path`: of the first
    part, whose settings are those of the file."""

    def __init__(self, path: Path) -> None:
        """Raises CheckpointError for a file that is damaged, lacks a part, or has data types that are not served."""
        self.path = path
        parts = [_Part(path)]
        self.settings: Mapping[str, Any] = parts[0].settings
        count = self.settings.get(_PARTS, 1)
        self.paths = paths_of_parts(path, count if isinstance(count, int) else 1)
        if self.settings.get(_PART, 0) != 0:
            raise CheckpointError(
                f"{path} is a later part of a GGUF file; give the first, {_name_of_part(path, 1, len(self.paths))}"
            )
        for index, other in enumerate(self.paths[1:], start=1):
            if not other.is_file():
                raise CheckpointError(f"{path} has {len(self.paths)} parts, and {other.name} is missing")
            parts.append(_Part(other))
            if parts[-1].settings.get(_PART) != index or parts[-1].settings.get(_PARTS) != len(self.paths):
                raise CheckpointError(f"{other} is not part {index + 1} of {len(self.paths)} of {path.name}")
        self._contents = [part.content for part in parts]
        self.header_bytes = parts[0].header_bytes
        tensors = [part.tensor(index, *entry) for index, part in enumerate(parts) for entry in part.entries]
        self.tensors: Mapping[str, GgufTensor] = dict(tensors)
        if len(self.tensors) != len(tensors) or self.settings.get(_TENSORS, len(tensors)) != len(tensors):
            raise CheckpointError(f"{path} is damaged: its parts do not hold the tensors that it names")

    def rows(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor, not copied."""
        tensor = self.tensors[name]
        return np.frombuffer(self._contents[tensor.part], np.uint8, tensor.num_bytes, tensor.first)


def paths_of_parts(path: Path, count: int) -> list[Path]:
    """Where the parts of a file lie whose first part is given, and which has so many."""
    if not 1 <= count <= _MOST_PARTS:
        raise CheckpointError(f"{path} is damaged: it says that it has {count} parts")
    return [path, *(path.with_name(_name_of_part(path, index, count)) for index in range(2, count + 1))]


def _name_of_part(path: Path, number: int, count: int) -> str:
    return f"{gguf_name(path)}-{number:05}-of-{count:05}.gguf"


class _Part:
    """The header of one part, and its content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        reader = _Reader(self.content, path)
        if reader.bytes(4) != _MAGIC:
            raise CheckpointError(f"{path} is no GGUF file")
        version = reader.number("I")
        if version not in _VERSIONS:
            raise CheckpointError(f"{path} is a GGUF file of version {version}; served: 2 and 3")
        num_tensors, num_settings = reader.count(), reader.count()
        self.settings: dict[str, Any] = {}
        for _ in range(num_settings):
            name = reader.text()
            self.settings[name] = reader.value(reader.number("I"))
        alignment = self.settings.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
            raise CheckpointError(f"{path}: general.alignment cannot be {quoted(alignment)}")
        self.entries = [self._entry(reader) for _ in range(num_tensors)]
        self.header_bytes = -(-reader.position // alignment) * alignment

    def _entry(self, reader: "_Reader") -> tuple[str, tuple[int, ...], int, int]:
        name, num_dims = reader.text(), reader.number("I")
        if not 1 <= num_dims <= _MAX_DIMS:
            raise CheckpointError(f"{self.path}: tensor {quoted(name)} has {num_dims} dimensions")
        shape = tuple(int(reader.number("Q")) for _ in range(int(num_dims)))[::-1]
        return name, shape, int(reader.number("I")), int(reader.number("Q"))

    def tensor(self, index: int, name: str, shape: tuple[int, ...], kind: int, offset: int) -> tuple[str, GgufTensor]:
        """An entry of the header, checked. index: of this part."""
        block = BLOCKS.get(kind)
        if block is None:
            theirs, served = OTHER_TYPES.get(kind, f"number {kind}"), ", ".join(each.name for each in BLOCKS.values())
            raise CheckpointError(f"{self.path}: tensor {quoted(name)} has data type {theirs}; served: {served}")
        if shape[-1] % block.size:
            raise CheckpointError(
                f"{self.path}: rows of {shape[-1]} in {quoted(name)} are no whole {block.name} blocks"
            )
        num_bytes = math.prod(shape) // block.size * block.num_bytes
        first = self.header_bytes + offset
        if first + num_bytes > len(self.content) or not num_bytes:
            raise CheckpointError(f"{self.path} is cut: tensor {quoted(name)} ends behind the file")
        return name, GgufTensor(shape, block, index, first, num_bytes)


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

    def _texts(self, count: int) -> list[str]:
        """As that many calls of `text`, in a third of the time: vocabularies have 262,144."""
        content, position, texts = self._content, self.position, []
        size = len(content)
        for _ in range(count):
            first = position + _LENGTH.size
            if first > size:
                raise CheckpointError(f"{self._path} is cut inside its header")
            position = first + _LENGTH.unpack_from(content, position)[0]
            if position > size:
                raise CheckpointError(f"{self._path} is cut inside its header")
            try:
                texts.append(content[first:position].decode())
            except UnicodeDecodeError:
                raise CheckpointError(f"{self._path} is damaged: a text of a setting is no text") from None
        self.position = position
        return texts

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _LIST:
            item, count = self.number("I"), self.count()
            if item == _TEXT:
                return self._texts(count)
            if item in _NUMBERS:
                layout = f"<{count}{_NUMBERS[item]}"
                return list(struct.unpack(layout, self.bytes(struct.calcsize(layout))))
        elif kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        raise CheckpointError(f"{self._path} is damaged: a setting has type {kind}")
