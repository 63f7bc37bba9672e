"""From a model's name to its files: where the folder is, what its config says, and its weights, checked.

Weights come from safetensors or GGUF: mapped into memory, converted tensor by tensor, nothing unpickled, nothing
executed.
Knows no architecture: a model takes tensors from a weight source, and a tensor that is left over is an error.
"""

import hashlib
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import CheckpointError, CheckpointUnavailable
from engine.formats.format import FLOATS, FormatOfStacks, QuantisedFormat, cut
from engine.formats.gguf.checkpoint import Gguf, GgufCheckpoint
from engine.formats.gguf.folder import WEIGHTS as GGUF_WEIGHTS
from engine.formats.gguf.folder import folder_of_gguf
from engine.formats.selection import read_format
from engine.json_files import read_object
from engine.kernels.operators import Operators
from engine.kernels.quantised import Matrix, MatrixStack, QuantisedMatrix
from engine.models.config_reader import ConfigReader
from engine.parallel.group import Group, Solo
from engine.parallel.shard import Shard, Size, full_size, held_size

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
#: Weights, settings, tokenizer and templates; no pickles, no code, nothing from sub-folders (other formats live there).
_WANTED = ("*.safetensors", "*.json", "*.jinja", "*.model", "merges.txt")
_REVISION_SAMPLE_BYTES = 65_536
_MAX_HEADER_BYTES = 16 * 2**20  #: 100,000 tensors
_TIED_HEAD = "lm_head.weight"


def find_model_folder(model: str) -> Path:
    """The local folder of a model; a hub id is downloaded, or found in the local cache when there is no network. A GGUF
    file gets a folder in the cache.

    Raises CheckpointError.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if folder.suffix == ".gguf" and folder.is_file():
        return folder_of_gguf(folder)
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    if looks_like_path:
        raise CheckpointError(f"there is no folder {folder}")
    from huggingface_hub import snapshot_download  # slow to import, and not needed for local folders
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=list(_WANTED), ignore_patterns=["*/*"]))
    except LocalEntryNotFoundError as error:
        message = f"{model} is neither a folder nor in the local cache, and the model hub cannot be reached"
        raise CheckpointUnavailable(message) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{model} is neither a folder nor a model that the hub gives us: {reason}") from error


def read_config(folder: Path) -> Mapping[str, Any]:
    """The values of config.json. Raises CheckpointError where it is missing or is no JSON object."""
    file = folder / "config.json"
    if not file.is_file():
        raise CheckpointError(f"{folder} has no config.json")
    return read_object(file)


class Checkpoint:
    """The safetensors files of a folder. Only headers are read here; a tensor is read when a model takes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, Any] = {}
        self._file_of: dict[str, Path] = {}
        for file in _weight_files(folder):
            _check_header_size(file)
            try:
                handle = safe_open(str(file), framework="pt", device="cpu")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{file} is damaged or no safetensors file: {error}") from error
            self._files[file] = handle
            for name in handle.keys():  # type: ignore[no-untyped-call]  # noqa: SIM118 - the handle is no mapping
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
            raise CheckpointError(f"{folder / _INDEX} lists {_some(missing)}, but the files do not hold them")


#: The weights of a folder.
AnyCheckpoint = Checkpoint | GgufCheckpoint


def open_checkpoint(folder: Path) -> AnyCheckpoint:
    """The weights of a folder: of safetensors files, or of the GGUF file that the folder was made for."""
    return GgufCheckpoint(folder) if (folder / GGUF_WEIGHTS).exists() else Checkpoint(folder)


def format_of(checkpoint: AnyCheckpoint, config: ConfigReader) -> QuantisedFormat | None:
    """The format of a checkpoint's quantised layers; None: it has none. Raises CheckpointError."""
    return Gguf(checkpoint) if isinstance(checkpoint, GgufCheckpoint) else read_format(config)


class CheckpointWeights:
    """A checkpoint as a weight source: converted to the model's dtype and device, copied out of the mapped file."""

    def __init__(
        self,
        checkpoint: AnyCheckpoint,
        *,
        dtype: torch.dtype,
        device: torch.device,
        operators: Operators,
        group: Group | None = None,
        has_matrices: bool = True,
        quantised_by: QuantisedFormat | None = None,
    ) -> None:
        """group: the processes that share the model; None: one process. has_matrices: False where the operators map a
        packed weights file, so that matrices need not be read. quantised_by: the format of quantised layers."""
        self._format = quantised_by
        self.operators = operators
        self.group = group or Solo()
        self._has_matrices = has_matrices
        self._checkpoint = checkpoint
        self.dtype = dtype
        self._device = device
        self._taken: set[str] = set()
        self._tensors = _FormatTensors(checkpoint, self._taken)

    def __contains__(self, name: str) -> bool:
        return name in self._checkpoint.names or self.is_quantised(name.removesuffix(".weight"))

    def is_quantised(self, layer: str) -> bool:
        """Whether the weight of that layer is in the checkpoint's quantised format."""
        return self._format is not None and self._format.holds(self._tensors, layer)

    @property
    def tensor_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """As ListsTensors.tensor_shapes."""
        return {name: self._checkpoint.shape_of(name) for name in self._checkpoint.names}

    def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A tensor of that shape; this process's part of it where dimensions are sharded. Raises CheckpointError, also
        for a value that is not finite in that dtype."""
        self._taken.add(name)
        dtype = dtype or self.dtype
        tensor = self._checkpoint.read(name, shape).to(device=self._device, dtype=dtype, copy=True)
        if not _is_finite(tensor):
            raise CheckpointError(f"tensor {name} holds NaN, infinity, or values too large for {dtype}")
        return tensor

    def take_matrix(self, name: str, *shape: Size) -> torch.Tensor:
        """As `take`, for a weight that goes to the operators only: on the meta device where they hold it already. A
        quantised weight is dequantised."""
        layer = name.removesuffix(".weight")
        if self.is_quantised(layer):
            if len(shape) != 2:
                raise CheckpointError(f"{name} is quantised, and the model takes it as a tensor of {len(shape)} sizes")
            weight = self._take_quantised(layer, *shape)
            if self._has_matrices:
                return weight.dequantised()
            return torch.empty(weight.shape, dtype=self.dtype, device="meta")
        if self._has_matrices:
            return self.take(name, *shape)
        self._taken.add(name)
        self._checkpoint.check(name, shape)
        return torch.empty(tuple(held_size(size) for size in shape), dtype=self.dtype, device="meta")

    def take_linear_weight(self, layer: str, out_features: Size, in_features: Size) -> Matrix:
        """As WeightSource.take_linear_weight. Raises CheckpointError, also for scales that are not finite."""
        if self.is_quantised(layer):
            return self._take_quantised(layer, out_features, in_features)
        return self.take_matrix(f"{layer}.weight", out_features, in_features)

    def take_stack(self, name: str, count: int, out_features: Size, in_features: Size) -> MatrixStack:
        """As WeightSource.take_stack. Raises CheckpointError where the format has no stacks; for scales that are not
        finite when a matrix is decoded."""
        layer = name.removesuffix(".weight")
        if not self.is_quantised(layer):
            return self.take_matrix(name, count, out_features, in_features)
        if not isinstance(self._format, FormatOfStacks):
            raise CheckpointError(f"{name} is quantised, and the model takes it as a tensor of {count} experts")
        outputs, inputs = full_size(out_features), full_size(in_features)
        stack = self._format.read_stack(self._tensors, layer, count, outputs, inputs)
        return stack.mapped(lambda matrix: self._own_part(matrix, layer, out_features, in_features))

    def _take_quantised(self, layer: str, out_features: Size, in_features: Size) -> QuantisedMatrix:
        assert self._format is not None
        outputs, inputs = full_size(out_features), full_size(in_features)
        matrix = self._format.read(self._tensors, layer, outputs, inputs)
        return self._own_part(matrix, layer, out_features, in_features)

    def _own_part(self, matrix: QuantisedMatrix, layer: str, out_features: Size, in_features: Size) -> QuantisedMatrix:
        """What this process holds of a whole matrix."""
        if not all(_is_finite(part) for part in (matrix.scales, matrix.zeros) if isinstance(part, torch.Tensor)):
            raise CheckpointError(f"the scales of {layer} hold NaN or infinity")
        if isinstance(out_features, Shard) and not out_features.is_whole:
            matrix = matrix.outputs(out_features.ranges)
        if isinstance(in_features, Shard) and not in_features.is_whole:
            matrix = matrix.inputs(in_features.ranges)
        return matrix.to(self._device, self.dtype)

    def check_all_taken(self, ignored: re.Pattern[str]) -> None:
        """Raise CheckpointError for a tensor that no layer took: the code would not compute the checkpoint's model."""
        left = sorted(self._checkpoint.names - self._taken - {_TIED_HEAD})
        left = [name for name in left if not ignored.fullmatch(name) and not self._is_empty_bias(name)]
        if left:
            raise CheckpointError(f"the checkpoint has tensors that this architecture does not use: {_some(left)}")

    def _is_empty_bias(self, name: str) -> bool:
        """Whether it is a bias of zeros, which some writers of GPTQ add to every quantised layer."""
        layer = name.removesuffix(".bias")
        if layer == name or not self.is_quantised(layer):
            return False
        bias = self._checkpoint.read_exactly(name, self._checkpoint.shape_of(name), FLOATS)
        return not bool(bias.any())


class DummyWeights:
    """Seeded random weights of the shapes that a model takes: matrices small and normal, scales one, biases zero.

    The model is the same for any number of processes that share it.
    """

    def __init__(
        self,
        *,
        dtype: torch.dtype,
        device: torch.device,
        seed: int,
        operators: Operators,
        group: Group | None = None,
    ) -> None:
        self.operators = operators
        self.group = group or Solo()
        self.dtype = dtype
        self._device = device
        # On the device itself: eight billion numbers take minutes on one core.
        self._generator = torch.Generator(device).manual_seed(seed)

    def __contains__(self, name: str) -> bool:
        return True

    def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Random values of that shape; this process's part of them where dimensions are sharded."""
        full = tuple(full_size(size) for size in shape)
        dtype = dtype or self.dtype
        tensor = torch.empty(tuple(held_size(size) for size in shape), dtype=dtype, device=self._device)
        if len(shape) > 1:
            whole = torch.empty(full, device=self._device).normal_(std=0.02, generator=self._generator)
            return tensor.copy_(cut(whole, shape))
        return tensor.fill_(1.0 if name.endswith("weight") else 0.0)

    def take_matrix(self, name: str, *shape: Size) -> torch.Tensor:
        """As `take`."""
        return self.take(name, *shape)

    def take_linear_weight(self, layer: str, out_features: Size, in_features: Size) -> Matrix:
        """As `take`."""
        return self.take(f"{layer}.weight", out_features, in_features)

    def take_stack(self, name: str, count: int, out_features: Size, in_features: Size) -> MatrixStack:
        """As `take`."""
        return self.take(name, count, out_features, in_features)

    def is_quantised(self, layer: str) -> bool:
        """False: random weights are tensors."""
        return False


class _FormatTensors:
    """The Tensors of a checkpoint; notes which ones are taken."""

    def __init__(self, checkpoint: AnyCheckpoint, taken: set[str]) -> None:
        self._checkpoint = checkpoint
        self._taken = taken

    def __contains__(self, name: str) -> bool:
        return name in self._checkpoint.names

    def dtype_of(self, name: str) -> torch.dtype | None:
        return self._checkpoint.dtype_of(name)

    def shape_of(self, name: str) -> tuple[int, ...]:
        return self._checkpoint.shape_of(name)

    def read(self, name: str, shape: tuple[int, ...], *dtypes: torch.dtype) -> torch.Tensor:
        self._taken.add(name)
        return self._checkpoint.read_exactly(name, shape, dtypes)

    def ignore(self, name: str) -> None:
        self._taken.add(name)


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


def _is_finite(tensor: torch.Tensor) -> bool:
    """Whether all values are finite. Two passes at most, without a temporary: a sum in the tensor's own dtype runs at
    the speed of memory, and a finite one proves it. Only the sum of large finite values can overflow."""
    return bool(tensor.sum().isfinite()) or all(bool(bound.isfinite()) for bound in torch.aminmax(tensor))


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
            raise CheckpointError(f"{folder} lacks {_some(missing)}, which its index names")
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


def _some(names: list[str]) -> str:
    """The first three names and the number of the others, for an error message."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
