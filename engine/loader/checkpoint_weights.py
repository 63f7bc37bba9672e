"""A checkpoint as a weight source: each tensor is checked, brought to the model's dtype and device, and handed out.

Knows no architecture: a model takes tensors, and a tensor that is left over is an error.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from engine.errors import CheckpointError
from engine.formats.format import FLOATS, FormatOfForms, FormatOfStacks, QuantisedFormat
from engine.formats.gguf.checkpoint import Gguf, GgufCheckpoint
from engine.formats.gguf.folder import WEIGHTS as GGUF_WEIGHTS
from engine.formats.selection import read_format
from engine.json_files import some_of
from engine.kernels.operators import Operators
from engine.kernels.quantised import Matrix, MatrixStack, QuantisedMatrix
from engine.layers.adapter_points import AdapterPoints
from engine.layers.weights import AsStored
from engine.loader.safetensors_files import Checkpoint
from engine.models.config_reader import ConfigReader
from engine.parallel.group import Group, Solo
from engine.parallel.shard import Shard, Size, full_size, held_size

#: The weights of a folder.
AnyCheckpoint = Checkpoint | GgufCheckpoint


def open_checkpoint(folder: Path) -> AnyCheckpoint:
    """The weights of a folder: of safetensors files, or of the GGUF file that the folder was made for."""
    return GgufCheckpoint(folder) if (folder / GGUF_WEIGHTS).exists() else Checkpoint(folder)


def format_of(checkpoint: AnyCheckpoint, config: ConfigReader) -> QuantisedFormat | None:
    """The format of a checkpoint's quantised layers; None: it has none. Raises CheckpointError."""
    return Gguf(checkpoint) if isinstance(checkpoint, GgufCheckpoint) else read_format(config)


class CheckpointWeights(AsStored):
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
        adapter_points: AdapterPoints | None = None,
    ) -> None:
        """group: the processes that share the model; None: one process. has_matrices: False where the operators map a
        packed weights file, so that matrices need not be read. quantised_by: the format of quantised layers.
        adapter_points: where layers register that adapters can change them; None: the model has no adapters."""
        super().__init__(adapter_points)
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

    def has_own_head(self, head: str, embedding: str) -> bool:
        """As WeightSource.has_own_head. Values are compared in the model's dtype; a head that is equal counts as
        taken."""
        name, other = f"{head}.weight", f"{embedding}.weight"
        if self.is_quantised(head):
            return other in self
        if name not in self._checkpoint.names or other not in self._checkpoint.names or self.is_quantised(embedding):
            return False
        shape = self._checkpoint.shape_of(name)
        if shape != self._checkpoint.shape_of(other):
            return True
        stored, tied = (self._checkpoint.read(each, shape).to(self.dtype) for each in (name, other))
        if not torch.equal(stored, tied):
            return True
        self._taken.add(name)
        return False

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
        if self._has_matrices or not isinstance(self._format, FormatOfForms):
            matrix = self._format.read(self._tensors, layer, outputs, inputs)
        else:  # the operators hold the values
            matrix = self._format.form(self._tensors, layer, outputs, inputs)
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
        left = sorted(self._checkpoint.names - self._taken)
        left = [name for name in left if not ignored.fullmatch(name) and not self._is_empty_bias(name)]
        if left:
            raise CheckpointError(f"the checkpoint has tensors that this architecture does not use: {some_of(left)}")

    def _is_empty_bias(self, name: str) -> bool:
        """Whether it is a bias of zeros, which some writers of GPTQ add to every quantised layer."""
        layer = name.removesuffix(".bias")
        if layer == name or not self.is_quantised(layer):
            return False
        bias = self._checkpoint.read_exactly(name, self._checkpoint.shape_of(name), FLOATS)
        return not bool(bias.any())


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


def _is_finite(tensor: torch.Tensor) -> bool:
    """Whether all values are finite. Two passes at most, without a temporary: a sum in the tensor's own dtype runs at
    the speed of memory, and a finite one proves it. Only the sum of large finite values can overflow."""
    return bool(tensor.sum().isfinite()) or all(bool(bound.isfinite()) for bound in torch.aminmax(tensor))
