"""The operators in C++ (linear.cpp, norm.cpp, activation.cpp, argmax.cpp), for float32 and bfloat16 on CPU.

Every result depends on its own row only, to the last bit: not on the rows beside it, their number, or the threads.
"""

import torch
import torch.nn.functional as F

from engine.kernels.cpu.library import Library
from engine.kernels.cpu.weight_arena import WeightArena
from engine.kernels.operators import Activation, LinearFunction, NormFunction


class CppOperators:
    def __init__(self, library: Library, dtype: torch.dtype, *, has_int8_weights: bool = False) -> None:
        """dtype: of activations, float32 or bfloat16, and of weights unless those are to be int8."""
        self.library = library
        self._dtype = dtype
        self._has_int8_weights = has_int8_weights
        self._arena = WeightArena()
        self._linear = library.function("linear", dtype)
        self._linear_int8 = library.function("linear_int8", dtype)
        self._unpack_rows = library.function("unpack_rows", dtype)
        self._norm = library.function("norm", dtype)
        self._silu_mul = library.function("silu_mul", dtype)
        self._gelu_tanh_mul = library.function("gelu_tanh_mul", dtype)
        self._gelu_tanh = library.function("gelu_tanh", dtype)
        self._argmax = library.function("argmax", dtype)

    @property
    def name(self) -> str:
        return f"cpp-{self.library.instruction_set}{'-int8' if self._has_int8_weights else ''}"

    @property
    def state_kernels(self) -> None:
        return None

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
        if padding := -weight.shape[1] % (4 if self._has_int8_weights else 2):
            # Inputs go in pairs (bfloat16) or fours (int8): zeros beside them change nothing.
            multiply_padded = self.linear(F.pad(weight, (0, padding)), bias)
            return lambda x: multiply_padded(F.pad(x, (0, padding)))
        own_bias = None if bias is None else bias.to(self._dtype).clone()
        return (self._int8_linear if self._has_int8_weights else self._plain_linear)(weight, own_bias)

    def tied_embedding(self, table: torch.Tensor) -> tuple[LinearFunction, LinearFunction]:
        num_tokens, size = table.shape
        if self._has_int8_weights or size % 2:  # rows of 8 bits would not do as embeddings
            own = table.to(self._dtype)
            return lambda ids: F.embedding(ids, own), self.linear(table, None)
        packed = self._packed(table.to(self._dtype))
        call, num_threads = self._unpack_rows, self.library.num_threads

        def embed(ids: torch.Tensor) -> torch.Tensor:
            rows = torch.empty((len(ids), size), dtype=packed.dtype)
            call(ids.data_ptr(), packed.data_ptr(), rows.data_ptr(), len(ids), size, num_threads)
            return rows

        return embed, _Linear(self, packed, None, num_tokens, size)

    def _plain_linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
        return _Linear(self, self._packed(weight.to(self._dtype)), bias, *weight.shape)

    def _int8_linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
        """Weights rounded to 127 steps on either side of zero, each output with a scale of its own."""
        num_outputs, num_inputs = weight.shape
        scales = weight.float().abs().amax(dim=1) / 127
        steps = (weight.float() / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round().to(torch.int8)
        padding = -num_outputs % self.library.panel_outputs
        sums = F.pad(steps.sum(dim=1, dtype=torch.int32), (0, padding))
        scales = F.pad(scales, (0, padding))
        packed = self._packed(steps)
        call, num_threads = self._linear_int8, self.library.num_threads

        def multiply(x: torch.Tensor) -> torch.Tensor:
            assert x.stride(1) == 1
            num_rows = x.shape[0]
            y = torch.empty((num_rows, num_outputs), dtype=x.dtype)
            call(
                x.data_ptr(), x.stride(0), packed.data_ptr(), scales.data_ptr(), sums.data_ptr(),
                _address(bias), y.data_ptr(), num_outputs, num_rows, num_inputs, num_outputs,
                num_threads,
            )  # fmt: skip
            return y

        return multiply

    def _packed(self, weight: torch.Tensor) -> torch.Tensor:
        num_outputs, num_inputs = weight.shape
        num_panels = -(-num_outputs // self.library.panel_outputs)
        packed = self._arena.empty(num_panels * self.library.panel_outputs * num_inputs, weight.dtype)
        weight = weight.contiguous()
        pack = self.library.function("pack_linear", weight.dtype)
        pack(weight.data_ptr(), packed.data_ptr(), num_outputs, num_inputs, self.library.num_threads)
        return packed

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        return self._norm_with(weight, None, eps)

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        return self._norm_with(weight, bias, eps)

    def _norm_with(self, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> NormFunction:
        scales = weight.float().contiguous()
        return _Norm(self, scales, None if bias is None else bias.float().contiguous(), eps)

    def norm_linear(self, norm: NormFunction, linear: LinearFunction) -> NormFunction:
        if not (isinstance(norm, _Norm) and isinstance(linear, _Linear)):  # int8 weights, padded inputs
            return lambda stream, update: linear(norm(stream, update))
        call, num_threads = self.library.function("norm_linear", self._dtype), self.library.num_threads

        def run(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
            num_rows, size = stream.shape
            y = torch.empty((num_rows, linear.num_outputs), dtype=stream.dtype)
            call(
                stream.data_ptr(), _address(update), norm.scales.data_ptr(),
                _address(norm.shifts), norm.eps, linear.packed.data_ptr(), _address(linear.bias), y.data_ptr(),
                num_rows, size, linear.num_outputs, num_threads,
            )  # fmt: skip
            return y

        return run

    def gated_mlp(
        self, norm: NormFunction, gate_up: LinearFunction, down: LinearFunction, activation: Activation
    ) -> NormFunction:
        if not (isinstance(norm, _Norm) and isinstance(gate_up, _Linear) and isinstance(down, _Linear)):
            return lambda stream, update: down(activation(gate_up(norm(stream, update))))
        assert activation in (self.silu_mul, self.gelu_tanh_mul)
        call, num_threads = self.library.function("gated_mlp", self._dtype), self.library.num_threads
        is_silu = int(activation == self.silu_mul)

        def run(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
            y = torch.empty_like(stream)
            num_rows, size = stream.shape
            call(
                stream.data_ptr(), _address(update), norm.scales.data_ptr(),
                _address(norm.shifts), norm.eps, gate_up.packed.data_ptr(), _address(gate_up.bias),
                down.packed.data_ptr(), _address(down.bias), y.data_ptr(), num_rows, size, down.num_inputs, is_silu,
                num_threads,
            )  # fmt: skip
            return y

        return run

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        y = torch.empty((gate_up.shape[0], gate_up.shape[1] // 2), dtype=gate_up.dtype)
        self._silu_mul(gate_up.data_ptr(), y.data_ptr(), *y.shape, self.library.num_threads)
        return y

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        y = torch.empty((gate_up.shape[0], gate_up.shape[1] // 2), dtype=gate_up.dtype)
        self._gelu_tanh_mul(gate_up.data_ptr(), y.data_ptr(), *y.shape, self.library.num_threads)
        return y

    def gelu_tanh(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        self._gelu_tanh(x.data_ptr(), y.data_ptr(), *y.shape, self.library.num_threads)
        return y

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        token_ids = torch.empty(logits.shape[0], dtype=torch.int64)
        self._argmax(logits.data_ptr(), logits.stride(0), token_ids.data_ptr(), *logits.shape, self.library.num_threads)
        return token_ids


class _Linear:
    """A packed linear, with what a chain of operators must know of it."""

    def __init__(
        self,
        operators: CppOperators,
        packed: torch.Tensor,
        bias: torch.Tensor | None,
        num_outputs: int,
        num_inputs: int,
    ) -> None:
        self.packed = packed
        self.bias = bias
        self.num_outputs = num_outputs
        self.num_inputs = num_inputs
        self._call = operators._linear
        self._num_threads = operators.library.num_threads

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        assert x.stride(1) == 1
        num_rows = x.shape[0]
        y = torch.empty((num_rows, self.num_outputs), dtype=x.dtype)
        self._call(
            x.data_ptr(), x.stride(0), self.packed.data_ptr(), _address(self.bias), y.data_ptr(), self.num_outputs,
            num_rows, self.num_inputs, self.num_outputs, self._num_threads,
        )  # fmt: skip
        return y


class _Norm:
    """A norm, likewise."""

    def __init__(self, operators: CppOperators, scales: torch.Tensor, shifts: torch.Tensor | None, eps: float) -> None:
        self.scales = scales
        self.shifts = shifts
        self.eps = eps
        self._call = operators._norm
        self._num_threads = operators.library.num_threads

    def __call__(self, stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
        assert stream.is_contiguous()
        assert update is None or update.is_contiguous()
        y = torch.empty_like(stream)
        num_rows, size = stream.shape
        self._call(
            stream.data_ptr(), _address(update), self.scales.data_ptr(), _address(self.shifts), y.data_ptr(),
            num_rows, size, self.eps, self._num_threads,
        )  # fmt: skip
        return y


def _address(tensor: torch.Tensor | None) -> int:
    """0 for none: a null pointer."""
    return 0 if tensor is None else tensor.data_ptr()
