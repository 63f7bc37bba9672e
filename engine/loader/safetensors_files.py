"""The safetensors files of a folder: which tensors they hold, and their values, which are mapped and read on demand.
Nothing is unpickled, nothing executed."""

import hashlib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import CheckpointError
from engine.json_files import read_object, some_of
from engine.parallel.shard import Shard, Size, full_size

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
#: Data types in formats of quantised checkpoints.
_TYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "I64": torch.int64,
    "I32": torch.int32,
    "I8": torch.int8,
    "U8": torch.uint8,
}
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_REVISION_SAMPLE_BYTES = 65_536
_MAX_HEADER_BYTES = 16 * 2**20  #: 100,000 tensors


class Checkpoint:
    """The safetensors files of a folder. Only headers are read here; a tensor is read when a model takes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, Any] = {}
        self._file_of: dict[str, Path] = {}
        for file in _weight_files(folder):
            handle = self._files[file] = open_safetensors(file)
            for name in handle.keys():  # noqa: SIM118 - the handle is no mapping
                if name in self._file_of:
                    raise CheckpointError(f"{name} is in {self._file_of[name].name} and in {file.name}")
                self._file_of[name] = file
        self._check_index(folder)

    @property
    def num_parameters(self) -> int:
        """Elements of all tensors."""
        return sum(_size(self._slice(name)) for name in self._file_of)

    @property
    def names(self) -> Set[str]:
        """Names of all tensors."""
        return self._file_of.keys()

    @property
    def revision(self) -> str:
        """Short digest of the config and of each file (name, size, header, a sample), to tell models apart."""
        digest = hashlib.sha256((self._folder / "config.json").read_bytes())
        for file in sorted(self._files):
            size = file.stat().st_size
            digest.update(f"{file.name} {size}\n".encode())
            with file.open("rb") as stream:
                header_bytes = int.from_bytes(stream.read(8), "little")
                digest.update(stream.read(header_bytes + _REVISION_SAMPLE_BYTES))
                stream.seek(max(0, size - _REVISION_SAMPLE_BYTES))
                digest.update(stream.read())
        return digest.hexdigest()[:12]

    @property
    def identity(self) -> str:
        """Digest of the revision and of each file's path, inode, size and time stamp.

        Changed content changes the identity even where the samples in the revision are equal.
        """
        digest = hashlib.sha256(self.revision.encode())
        for file in sorted(self._files):
            status = file.resolve().stat()
            digest.update(f"{file.resolve()} {status.st_ino} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def read(self, name: str, shape: tuple[Size, ...]) -> torch.Tensor:
        """A tensor of that shape and a floating dtype; it may share memory with the mapped file.

        Only this process's part of a sharded dimension is read. Raises CheckpointError as `check` does.
        """
        entry = self.check(name, shape)
        if any(isinstance(size, Shard) and not size.is_whole for size in shape):
            return _read_shard(entry, shape, ())
        tensor: torch.Tensor = self._files[self._file_of[name]].get_tensor(name)
        return tensor

    def dtype_of(self, name: str) -> torch.dtype | None:
        """The data type of a tensor; None: there is no tensor of that name, or its type is not among those that
        formats of quantised checkpoints use."""
        return _TYPES.get(self._slice(name).get_dtype()) if name in self._file_of else None

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises CheckpointError where it is missing."""
        if name not in self._file_of:
            raise CheckpointError(f"the checkpoint has no tensor {name}")
        return tuple(self._slice(name).get_shape())

    def read_exactly(self, name: str, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> torch.Tensor:
        """A tensor of that shape and one of these data types. Raises CheckpointError."""
        found = self.shape_of(name)
        if found != shape:
            raise CheckpointError(f"tensor {name} has shape {list(found)}, the config says {list(shape)}")
        dtype = self.dtype_of(name)
        if dtype not in dtypes:
            wanted = " or ".join(str(each).removeprefix("torch.") for each in dtypes)
            raise CheckpointError(f"tensor {name} has dtype {self._slice(name).get_dtype()}, not {wanted}")
        tensor: torch.Tensor = self._files[self._file_of[name]].get_tensor(name)
        return tensor

    def check(self, name: str, shape: tuple[Size, ...]) -> Any:
        """The tensor's entry in its file, unread. Raises CheckpointError for a missing tensor, shape or dtype."""
        if name not in self._file_of:
            raise CheckpointError(f"the checkpoint has no tensor {name}")
        entry = self._slice(name)
        found = tuple(entry.get_shape())
        expected = tuple(full_size(size) for size in shape)
        if found != expected:
            raise CheckpointError(f"tensor {name} has shape {list(found)}, the config says {list(expected)}")
        if entry.get_dtype() not in _FLOATS:
            raise CheckpointError(f"tensor {name} has dtype {entry.get_dtype()}; supported: {', '.join(_FLOATS)}")
        return entry

    def _slice(self, name: str) -> Any:
        return self._files[self._file_of[name]].get_slice(name)

    def _check_index(self, folder: Path) -> None:
        """Raise CheckpointError unless the files hold every tensor that the index lists."""
        if not (folder / _INDEX).is_file():
            return
        missing = sorted(set(_weight_map(folder / _INDEX)) - set(self._file_of))
        if missing:
            raise CheckpointError(f"{folder / _INDEX} lists {some_of(missing)}, but the files do not hold them")


def open_safetensors(file: Path) -> Any:
    """A handle of the safetensors library on a file, of which only the header has been read. Raises CheckpointError
    for a file that is damaged, unreadable or none of that format."""
    _check_header_size(file)
    try:
        return safe_open(str(file), framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is damaged or no safetensors file: {error}") from error


def _read_shard(entry: Any, shape: tuple[Size, ...], ranges: tuple[tuple[int, int], ...]) -> torch.Tensor:
    """Read only the parts of a tensor that this process holds. ranges: the parts of the first dimensions."""
    # Not a nested function: one that calls itself would keep the file mapped until the next garbage collection.
    dim = len(ranges)
    if dim == len(shape):
        tensor: torch.Tensor = entry[tuple(slice(start, end) for start, end in ranges)]
        return tensor
    size = shape[dim]
    held = size.ranges if isinstance(size, Shard) else ((0, size),)
    parts = [_read_shard(entry, shape, (*ranges, part)) for part in held]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _weight_files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.is_file():
        names = sorted(set(_weight_map(index).values()))
        # A name is a file of this folder, never a path to somewhere else.
        files = [folder / name for name in names if Path(name).name == name and "\0" not in name]
        if len(files) != len(names):
            raise CheckpointError(f"{index} names files outside its folder")
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise CheckpointError(f"{folder} lacks {some_of(missing)}, which its index names")
        return files
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
        raise CheckpointError(f"{folder} holds pickled weights, which are never loaded; convert them to safetensors")
    raise CheckpointError(f"{folder} has no {_SINGLE}")


def _size(entry: Any) -> int:
    size = 1
    for length in entry.get_shape():
        size *= length
    return size


def _weight_map(index: Path) -> Mapping[str, str]:
    """The name of each tensor's file."""
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"{index} has no weight_map of names")
    return weight_map


def _check_header_size(file: Path) -> None:
    """Raise CheckpointError where the header is longer than the file or than any real one: its parser takes memory
    many times its length."""
    try:
        with file.open("rb") as stream:
            num_bytes = int.from_bytes(stream.read(8), "little")
        room = file.stat().st_size - 8
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
    if num_bytes > min(room, _MAX_HEADER_BYTES):
        raise CheckpointError(
            f"{file} is damaged or no safetensors file: a header of {num_bytes} bytes, with {max(0, room)} in the file"
        )
