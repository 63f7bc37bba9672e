"""Operators bound to their weights: callable one by one, with the attributes from which recorder.py makes steps."""

import ctypes

import torch

from engine.kernels.cpu.grouped_weights import PackedGroups
from engine.kernels.cpu.library import Library
from engine.kernels.cpu.steps import ActivationKind

_ROW_BLOCK_BYTES = 8  #: RowBlock of grouped.h


class CppLinear:
    """A linear on packed weights: x [rows, in] -> [rows, out]. What recorder.py needs of it: the attributes; rows in 8
    bits take row_bytes and block_bytes each."""

    packed: torch.Tensor | None = None
    grouped_address: int = 0
    row_bytes: int = 0
    block_bytes: int = 0

    def __init__(
        self,
        library: Library,
        packed: torch.Tensor,
        bias: torch.Tensor | None,
        shape: torch.Size,
        dtype: torch.dtype,
    ) -> None:
        """shape: [out, in]. dtype: of activations and weights."""
        self.packed = packed
        self.bias = bias
        self.num_outputs, self.num_inputs = shape
        self._call = library.function("linear", dtype)
        self._num_threads = library.num_threads
        self._weights = [address(weight) for weight in (packed, bias)]
        self._sizes = [self.num_inputs, self.num_outputs]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        assert x.stride(1) == 1
        num_rows = x.shape[0]
        y = torch.empty((num_rows, self.num_outputs), dtype=x.dtype)
        self._call(
            x.data_ptr(), x.stride(0), *self._weights, y.data_ptr(), self.num_outputs,
            num_rows, *self._sizes, self._num_threads,
        )  # fmt: skip
        return y


class CppGroupedLinear(CppLinear):
    """The same with quantised weights that have scales for groups of inputs."""

    def __init__(self, library: Library, groups: PackedGroups, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """dtype: of activations."""
        self.bias = bias
        self.num_outputs, self.num_inputs = groups.shape
        self.grouped_address = ctypes.addressof(groups.weights)
        self.bits, self.has_book = groups.weights.bits, bool(groups.weights.book)
        self.row_bytes, self.block_bytes = groups.num_columns, _ROW_BLOCK_BYTES * groups.num_blocks
        self._call = library.function("linear_grouped", dtype)
        self._num_threads = library.num_threads
        self._groups = groups  # keeps alive what the address points to
        self._weights = [self.grouped_address, address(bias)]
        self._sizes = [self.num_outputs]


class CppNorm:
    """RMS norm or layer norm of stream + update, both [rows, size]; the sum is written to the stream."""

    def __init__(
        self, library: Library, scales: torch.Tensor, shifts: torch.Tensor | None, eps: float, dtype: torch.dtype
    ) -> None:
        """scales, shifts [size] float32; with shifts it is a layer norm."""
        self.scales = scales
        self.shifts = shifts
        self.eps = eps
        self._call = library.function("norm", dtype)
        self._num_threads = library.num_threads

    def __call__(self, stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
        assert stream.is_contiguous()
        assert update is None or update.is_contiguous()
        y = torch.empty_like(stream)
        num_rows, size = stream.shape
        self._call(
            stream.data_ptr(), address(update), self.scales.data_ptr(), address(self.shifts), y.data_ptr(),
            num_rows, size, self.eps, self._num_threads,
        )  # fmt: skip
        return y


class CppActivation:
    """An activation: x [rows, n] -> [rows, n], or [rows, n / 2] if it is gated."""

    def __init__(self, library: Library, kind: ActivationKind, dtype: torch.dtype) -> None:
        self.kind = kind
        self._call = library.function("activation", dtype)
        self._num_threads = library.num_threads

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_contiguous()
        size = x.shape[1] // 2 if self.kind.is_gated else x.shape[1]
        y = torch.empty((x.shape[0], size), dtype=x.dtype)
        self._call(self.kind, x.data_ptr(), y.data_ptr(), *y.shape, self._num_threads)
        return y


def address(tensor: torch.Tensor | None) -> int:
    """Address of the first element; 0, a null pointer, for None."""
    return 0 if tensor is None else tensor.data_ptr()
