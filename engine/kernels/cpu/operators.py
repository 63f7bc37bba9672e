"""The operators in C++ (linear.cpp, norm.cpp, activation.cpp, argmax.cpp), for float32 and bfloat16 on CPU.

Every result depends on its own row only, to the last bit: not on the rows beside it, their number, or the threads.
"""

import torch
import torch.nn.functional as F

from engine.kernels.cpu.functions import CppActivation, CppLinear, CppNorm
from engine.kernels.cpu.library import Library
from engine.kernels.cpu.recorder import CppRecorder
from engine.kernels.cpu.steps import ActivationKind
from engine.kernels.cpu.weight_arena import WeightArena
from engine.kernels.operators import LinearFunction, NormFunction


class CppOperators:
    def __init__(self, library: Library, dtype: torch.dtype, *, has_int8_weights: bool = False) -> None:
        """dtype: of activations, float32 or bfloat16, and of weights unless those are to be int8."""
        self.library = library
        self._dtype = dtype
        self._has_int8_weights = has_int8_weights
        self._arena = WeightArena()
        self._unpack_rows = library.function("unpack_rows", dtype)
        self._argmax = library.function("argmax", dtype)
        self.silu_mul = CppActivation(library, ActivationKind.SILU_MUL, dtype)
        self.gelu_tanh_mul = CppActivation(library, ActivationKind.GELU_TANH_MUL, dtype)
        self.gelu_tanh = CppActivation(library, ActivationKind.GELU_TANH, dtype)
        self.gelu = CppActivation(library, ActivationKind.GELU, dtype)
        self.relu = CppActivation(library, ActivationKind.RELU, dtype)

    @property
    def name(self) -> str:
        return f"cpp-{self.library.instruction_set}{'-int8' if self._has_int8_weights else ''}"

    @property
    def state_kernels(self) -> None:
        return None

    def recorder(self) -> CppRecorder:
        return CppRecorder(self.library.panel_outputs)

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
        if padding := -weight.shape[1] % (4 if self._has_int8_weights else 2):
            # Inputs go in pairs (bfloat16) or fours (int8): zeros beside them change nothing.
            multiply_padded = self.linear(F.pad(weight, (0, padding)), bias)
            return lambda x: multiply_padded(F.pad(x, (0, padding)))
        own_bias = None if bias is None else bias.to(self._dtype).clone()
        return (self._int8_linear if self._has_int8_weights else self._plain_linear)(weight, own_bias)

    def tied_embedding(self, table: torch.Tensor) -> tuple[LinearFunction, LinearFunction]:
        size = table.shape[1]
        if self._has_int8_weights or size % 2:  # rows of 8 bits would not do as embeddings
            own = table.to(self._dtype)
            return lambda ids: F.embedding(ids, own), self.linear(table, None)
        packed = self._packed(table.to(self._dtype))
        call, num_threads = self._unpack_rows, self.library.num_threads

        def embed(ids: torch.Tensor) -> torch.Tensor:
            rows = torch.empty((len(ids), size), dtype=packed.dtype)
            call(ids.data_ptr(), packed.data_ptr(), rows.data_ptr(), len(ids), size, num_threads)
            return rows

        return embed, CppLinear(self.library, packed, None, table.shape, self._dtype)

    def _plain_linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> CppLinear:
        return CppLinear(self.library, self._packed(weight.to(self._dtype)), bias, weight.shape, self._dtype)

    def _int8_linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> CppLinear:
        """Weights rounded to 127 steps on either side of zero, each output with a scale of its own."""
        scales = weight.float().abs().amax(dim=1) / 127
        steps = (weight.float() / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round().to(torch.int8)
        padding = -weight.shape[0] % self.library.panel_outputs
        sums = F.pad(steps.sum(dim=1, dtype=torch.int32), (0, padding))
        int8 = (F.pad(scales, (0, padding)), sums)
        return CppLinear(self.library, self._packed(steps), bias, weight.shape, self._dtype, int8)

    def _packed(self, weight: torch.Tensor) -> torch.Tensor:
        num_outputs, num_inputs = weight.shape
        num_panels = -(-num_outputs // self.library.panel_outputs)
        packed = self._arena.empty(num_panels * self.library.panel_outputs * num_inputs, weight.dtype)
        weight = weight.contiguous()
        pack = self.library.function("pack_linear", weight.dtype)
        pack(weight.data_ptr(), packed.data_ptr(), num_outputs, num_inputs, self.library.num_threads)
        return packed

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        return CppNorm(self.library, weight.float().contiguous(), None, eps, self._dtype)

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        scales, shifts = weight.float().contiguous(), bias.float().contiguous()
        return CppNorm(self.library, scales, shifts, eps, self._dtype)

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        token_ids = torch.empty(logits.shape[0], dtype=torch.int64)
        self._argmax(logits.data_ptr(), logits.stride(0), token_ids.data_ptr(), *logits.shape, self.library.num_threads)
        return token_ids
