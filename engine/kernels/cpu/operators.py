"""The operators in C++ (linear.cpp, norm.cpp, activation.cpp, argmax.cpp), for float32 and bfloat16 on CPU.

Every result depends on its own row only, to the last bit: not on the rows beside it, their number, or the threads.
"""

import torch

from engine.kernels.cpu.library import Library
from engine.kernels.operators import LinearFunction, NormFunction


class CppOperators:
    def __init__(self, library: Library, dtype: torch.dtype) -> None:
        """dtype: of activations and weights, float32 or bfloat16."""
        self.library = library
        self._dtype = dtype
        self._pack = library.function("pack_linear", dtype)
        self._linear = library.function("linear", dtype)
        self._norm = library.function("norm", dtype)
        self._silu_mul = library.function("silu_mul", dtype)
        self._gelu_tanh_mul = library.function("gelu_tanh_mul", dtype)
        self._gelu_tanh = library.function("gelu_tanh", dtype)
        self._argmax = library.function("argmax", dtype)

    @property
    def name(self) -> str:
        return f"cpp-{self.library.instruction_set}"

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
        num_outputs, num_inputs = weight.shape
        if num_inputs % 2:  # bfloat16 inputs go in pairs: a column of zeros beside them changes nothing
            weight = torch.nn.functional.pad(weight, (0, 1))
            multiply_even = self.linear(weight, bias)
            return lambda x: multiply_even(torch.nn.functional.pad(x, (0, 1)))
        num_panels = -(-num_outputs // self.library.panel_outputs)
        packed = torch.empty(num_panels * self.library.panel_outputs * num_inputs, dtype=self._dtype)
        weight = weight.to(self._dtype).contiguous()
        self._pack(weight.data_ptr(), packed.data_ptr(), num_outputs, num_inputs)
        own_bias = None if bias is None else bias.to(self._dtype).clone()
        call = self._linear

        def multiply(x: torch.Tensor) -> torch.Tensor:
            if x.stride(1) != 1:
                x = x.contiguous()
            num_rows = x.shape[0]
            y = torch.empty((num_rows, num_outputs), dtype=x.dtype)
            call(
                x.data_ptr(), x.stride(0), packed.data_ptr(), 0 if own_bias is None else own_bias.data_ptr(),
                y.data_ptr(), num_outputs, num_rows, num_inputs, num_outputs,
            )  # fmt: skip
            return y

        return multiply

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        return self._norm_with(weight, None, eps)

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        return self._norm_with(weight, bias, eps)

    def _norm_with(self, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> NormFunction:
        scales = weight.float().contiguous()
        shifts = None if bias is None else bias.float().contiguous()
        call = self._norm

        def norm(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
            assert stream.is_contiguous()
            assert update is None or update.is_contiguous()
            y = torch.empty_like(stream)
            num_rows, size = stream.shape
            call(
                stream.data_ptr(), 0 if update is None else update.data_ptr(), scales.data_ptr(),
                0 if shifts is None else shifts.data_ptr(), y.data_ptr(), num_rows, size, eps,
            )  # fmt: skip
            return y

        return norm

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        y = torch.empty((gate_up.shape[0], gate_up.shape[1] // 2), dtype=gate_up.dtype)
        self._silu_mul(gate_up.data_ptr(), y.data_ptr(), *y.shape)
        return y

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        y = torch.empty((gate_up.shape[0], gate_up.shape[1] // 2), dtype=gate_up.dtype)
        self._gelu_tanh_mul(gate_up.data_ptr(), y.data_ptr(), *y.shape)
        return y

    def gelu_tanh(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        self._gelu_tanh(x.data_ptr(), y.data_ptr(), *y.shape)
        return y

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        token_ids = torch.empty(logits.shape[0], dtype=torch.int64)
        self._argmax(logits.data_ptr(), logits.stride(0), token_ids.data_ptr(), *logits.shape)
        return token_ids
