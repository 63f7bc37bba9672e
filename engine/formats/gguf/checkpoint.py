"""The weights of a GGUF file under the names that models take: plain tensors, and quantised matrices."""

import hashlib
import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.errors import CheckpointError
from engine.formats.format import FLOATS, Tensors, cut
from engine.formats.gguf.architectures import architecture_in
from engine.formats.gguf.changes import NOTHING, Change
from engine.formats.gguf.file import GgufFile, GgufTensor
from engine.formats.gguf.folder import WEIGHTS
from engine.formats.gguf.names import Place, places_of
from engine.json_files import read_object
from engine.kernels.quantised import QuantisedMatrix, QuantisedStack, joined
from engine.parallel.shard import Size, full_size

_REVISION_SAMPLE_BYTES = 65_536


class GgufCheckpoint:
    """The tensors of the file in a folder made by folder_of_gguf."""

    def __init__(self, folder: Path) -> None:
        self.file = GgufFile(folder / WEIGHTS)
        self._config = read_object(folder / "config.json")
        self._places: Mapping[str, Place] = places_of(self.file, architecture_in(self.file), self._config)
        self._computed: tuple[str, torch.Tensor] | None = None  # the last tensor that is no copy of one in the file

    @property
    def names(self) -> Set[str]:
        """Names of all tensors, as models take them."""
        return self._places.keys()

    @property
    def num_parameters(self) -> int:
        """Elements of all tensors."""
        return sum(math.prod(tensor.shape) for tensor in self.file.tensors.values())

    @property
    def revision(self) -> str:
        """Short digest of the header, of samples and of the sizes."""
        digest = hashlib.sha256()
        for path in self.file.paths:
            size = path.stat().st_size
            digest.update(str(size).encode())
            with path.open("rb") as stream:
                digest.update(stream.read(self.file.header_bytes + _REVISION_SAMPLE_BYTES))
                stream.seek(-min(_REVISION_SAMPLE_BYTES, size), 2)
                digest.update(stream.read())
        return digest.hexdigest()[:12]

    @property
    def identity(self) -> str:
        """As Checkpoint.identity."""
        parts: list[object] = [self.revision]
        for path in self.file.paths:
            status = path.resolve().stat()
            parts += [path.resolve(), status.st_ino, status.st_size, status.st_mtime_ns]
        return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()

    def is_quantised(self, name: str) -> bool:
        """Whether there is a tensor of that name, and it is handed out as quantised matrices."""
        place = self._places.get(name)
        if place is None or place.change.values is not None:
            return False
        blocks = {tensor.block.name: tensor.block for tensor in self._tensors(place)}
        return len(blocks) == 1 and next(iter(blocks.values())).decode is not None

    def dtype_of(self, name: str) -> torch.dtype | None:
        """As Checkpoint.dtype_of; bytes for quantised matrices."""
        place = self._places.get(name)
        if place is None:
            return None
        if self.is_quantised(name):
            return torch.uint8
        dtypes = {tensor.block.dtype for tensor in self._tensors(place)}
        (only,) = dtypes if len(dtypes) == 1 and place.change.values is None else (torch.float32,)
        return only or torch.float32

    def shape_of(self, name: str) -> tuple[int, ...]:
        """As Checkpoint.shape_of."""
        place = self._place(name)
        if place.change.values is not None:
            return tuple(self._plain(name).shape)
        shapes = [_shape(tensor, place) for tensor in self._tensors(place)]
        dim = place.change.dim
        sizes = list(shapes[0])
        if dim >= len(sizes) or any(shape[:dim] != shapes[0][:dim] for shape in shapes):
            raise CheckpointError(f"{self.file.path.name}: the parts of {name} have shapes {list(map(list, shapes))}")
        if any(shape[dim + 1 :] != shapes[0][dim + 1 :] for shape in shapes):
            raise CheckpointError(f"{self.file.path.name}: the parts of {name} have shapes {list(map(list, shapes))}")
        sizes[dim] = sum(shape[dim] for shape in shapes)
        if place.change.is_transposed and not self.is_quantised(name):
            sizes[-2:] = sizes[:-3:-1]
        return tuple(sizes)

    def read_exactly(self, name: str, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> torch.Tensor:
        """As Checkpoint.read_exactly."""
        found = self.shape_of(name)
        if found != shape or self.is_quantised(name) or self.dtype_of(name) not in dtypes:
            kinds = "+".join(tensor.block.name for tensor in self._tensors(self._place(name)))
            raise CheckpointError(f"tensor {name} has {kinds} and shape {list(found)}, the config says {list(shape)}")
        return self._plain(name)

    def read(self, name: str, shape: tuple[Size, ...]) -> torch.Tensor:
        """As Checkpoint.read."""
        self.check(name, shape)
        return cut(self.read_exactly(name, self.shape_of(name), FLOATS), shape)

    def check(self, name: str, shape: tuple[Size, ...]) -> None:
        """As Checkpoint.check."""
        found, wanted = self.shape_of(name), tuple(map(full_size, shape))
        if found != wanted:
            raise CheckpointError(f"tensor {name} has shape {list(found)}, the config says {list(wanted)}")

    def matrix(self, name: str, expert: int | None = None) -> QuantisedMatrix:
        """The quantised matrix of that name, or one of a stack."""
        place = self._place(name)
        parts = [self._decoded(part, place.expert if expert is None else expert) for part in place.tensors]
        whole = joined(parts)
        assert whole is not None, "blocks of one kind always join"
        if place.change.rows is not None:
            whole = whole[place.change.rows(self._config, whole.shape[0])]
        return whole if place.change.columns is None else self._in_order(whole, place.change)

    def form(self, name: str) -> QuantisedMatrix:
        """What `matrix` is like, from a row of zeros: with undefined codes and scales, which take no memory."""
        (outputs, inputs), place = self.shape_of(name), self._place(name)
        block = self.file.tensors[place.tensors[0]].block
        assert block.decode is not None
        row = block.decode(torch.zeros((1, inputs // block.size, block.num_bytes), dtype=torch.uint8))
        zeros = row.zeros if isinstance(row.zeros, int) else row.zeros.expand(outputs, -1)
        whole = replace(row, codes=row.codes.expand(outputs, -1), scales=row.scales.expand(outputs, -1), zeros=zeros)
        return whole if place.change.columns is None else self._in_order(whole, place.change)

    def _in_order(self, matrix: QuantisedMatrix, change: Change) -> QuantisedMatrix:
        """With other columns: whole groups are moved, where they stay together."""
        assert change.columns is not None
        order, size = change.columns(self._config, matrix.shape[1]), matrix.group_size
        groups = order.view(-1, size)
        if not bool(((groups - groups[:, :1] == torch.arange(size)) & (groups[:, :1] % size == 0)).all()):
            return replace(matrix, order=torch.argsort(order))
        places = groups[:, 0] // size
        zeros = matrix.zeros if isinstance(matrix.zeros, int) else matrix.zeros[:, places]
        return replace(matrix, codes=matrix.codes[:, order], scales=matrix.scales[:, places], zeros=zeros)

    def _plain(self, name: str) -> torch.Tensor:
        """A tensor in floating-point numbers, in the order that models take."""
        if self._computed is not None and self._computed[0] == name:
            return self._computed[1]
        place, dtype = self._place(name), self.dtype_of(name)
        change, parts = place.change, [self._floats(part, place.expert) for part in place.tensors]
        if change.values is not None:
            tensor = change.values(parts, self._config)
        else:
            tensor = torch.cat([part.to(dtype) for part in parts], dim=change.dim) if len(parts) > 1 else parts[0]
        if change.rows is not None:
            order = change.rows(self._config, tensor.shape[change.dim])
            tensor = tensor.index_select(change.dim, order)
        if change.columns is not None:
            tensor = tensor[..., change.columns(self._config, tensor.shape[-1])]
        if change.is_transposed:
            tensor = tensor.transpose(-2, -1)
        if change is not NOTHING:
            self._computed = name, tensor
        return tensor

    def _floats(self, name: str, expert: int | None) -> torch.Tensor:
        tensor = self.file.tensors[name]
        if tensor.block.decode is None:
            assert tensor.block.dtype is not None
            shape = tensor.shape if expert is None else tensor.shape[1:]
            return self._bytes(name, expert).view(tensor.block.dtype).view(shape)
        shape = tensor.shape if expert is None else tensor.shape[1:]
        return self._decoded(name, expert).dequantised().view(shape)

    def _decoded(self, name: str, expert: int | None) -> QuantisedMatrix:
        tensor = self.file.tensors[name]
        assert tensor.block.decode is not None
        per_row = tensor.shape[-1] // tensor.block.size
        return tensor.block.decode(self._bytes(name, expert).view(-1, per_row, tensor.block.num_bytes))

    def _bytes(self, name: str, expert: int | None) -> torch.Tensor:
        raw = self.file.rows(name)
        if expert is not None:
            size = len(raw) // self.file.tensors[name].shape[0]
            raw = raw[expert * size : (expert + 1) * size]
        return torch.from_numpy(raw.copy())

    def _place(self, name: str) -> Place:
        if name not in self._places:
            raise CheckpointError(f"{self.file.path.name} has no tensor {name}")
        return self._places[name]

    def _tensors(self, place: Place) -> list[GgufTensor]:
        return [self.file.tensors[part] for part in place.tensors]


def _shape(tensor: GgufTensor, place: Place) -> tuple[int, ...]:
    return tensor.shape if place.expert is None else tensor.shape[1:]


@dataclass(frozen=True, slots=True)
class Gguf:
    """The blocks of a GGUF checkpoint as a format of quantised layers."""

    checkpoint: GgufCheckpoint

    @property
    def name(self) -> str:
        """For logs and messages."""
        return "GGUF"

    def holds(self, tensors: Tensors, layer: str) -> bool:
        """Whether its weight has blocks. Stacks of experts have names without an ending."""
        return self._stored(layer) is not None

    def read(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """Blocks lie along the inputs."""
        return self.checkpoint.matrix(self._checked(tensors, layer, (outputs, inputs)))

    def form(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """As FormatOfForms."""
        return self.checkpoint.form(self._checked(tensors, layer, (outputs, inputs)))

    def read_stack(self, tensors: Tensors, layer: str, count: int, outputs: int, inputs: int) -> QuantisedStack:
        """As FormatOfStacks."""
        name = self._checked(tensors, layer, (count, outputs, inputs))
        return QuantisedStack(count, lambda index: self.checkpoint.matrix(name, index))

    def _stored(self, layer: str) -> str | None:
        return next((name for name in (f"{layer}.weight", layer) if self.checkpoint.is_quantised(name)), None)

    def _checked(self, tensors: Tensors, layer: str, shape: tuple[int, ...]) -> str:
        name = self._stored(layer)
        assert name is not None
        self.checkpoint.check(name, shape)
        tensors.ignore(name)
        return name
