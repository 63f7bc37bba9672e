"""The operators in C++ (linear.cpp, norm.cpp, activation.cpp, argmax.cpp, forbid.cpp, draw.cpp; those of recurrent
layers: state_kernels.py), for float32 and bfloat16 on CPU.

Every result depends on its own row only, to the last bit: not on other rows, their number, or the number of threads.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F

from engine.batch import TokenMasks
from engine.kernels.cpu.adapters import CppAdapterProduct
from engine.kernels.cpu.experts import CppExperts
from engine.kernels.cpu.functions import CppActivation, CppGroupedLinear, CppLinear, CppNorm
from engine.kernels.cpu.grouped_weights import PackedGroups
from engine.kernels.cpu.library import Library
from engine.kernels.cpu.recorder import CppRecorder
from engine.kernels.cpu.state_kernels import CppStateKernels
from engine.kernels.cpu.steps import ActivationKind
from engine.kernels.cpu.weight_memory import PrivateMemory, WeightMemory
from engine.kernels.operators import (
    AdapterShape,
    Draws,
    ExpertParts,
    LinearFunction,
    NormFunction,
    Routing,
    WorkTimer,
)
from engine.kernels.quantised import Matrix, QuantisedMatrix, RoundedForm, hollow, quantised

_ROUNDED_ROWS = 4096  #: outputs that are in float32 at once while they are rounded


class CppOperators:
    """The Operators on CPU, over the built library. Made by choose_operators."""

    def __init__(
        self,
        library: Library,
        dtype: torch.dtype,
        *,
        has_int8_weights: bool = False,
        has_int4_weights: bool = False,
    ) -> None:
        """dtype: of activations, float32 or bfloat16, and of weights, unless these are rounded to int8 or int4."""
        self._has_int4_weights = has_int4_weights
        self.library = library
        self.dtype = dtype
        self.has_int8_weights = has_int8_weights
        self.weight_memory: WeightMemory = PrivateMemory()  #: where matrices are packed from now on
        #: Importance, as `quantised` has it, for the matrices that `linear` will round to int4, in that order.
        self.importance: deque[torch.Tensor | None] | None = None
        self._rounded_weights, self._rounded_bits = 0, 0.0  # of layers, which are those that `linear` rounds
        self._unpack_rows = library.function("unpack_rows", dtype)
        self._argmax = library.function("argmax", dtype)
        self._draw = {each: library.function("draw", each) for each in (torch.float32, torch.bfloat16)}
        self._forbid = {each: library.function("forbid", each) for each in (torch.float32, torch.bfloat16)}
        self.silu_mul = CppActivation(library, ActivationKind.SILU_MUL, dtype)
        self.gelu_tanh_mul = CppActivation(library, ActivationKind.GELU_TANH_MUL, dtype)
        self.gelu_tanh = CppActivation(library, ActivationKind.GELU_TANH, dtype)
        self.gelu = CppActivation(library, ActivationKind.GELU, dtype)
        self.relu = CppActivation(library, ActivationKind.RELU, dtype)

    @property
    def name(self) -> str:
        """For logs and metrics."""
        return f"cpp-{self.library.instruction_set}{self._rounding}"

    @property
    def _rounding(self) -> str:
        return "-int8" if self.has_int8_weights else "-int4" if self._has_int4_weights else ""

    @property
    def bits_per_weight(self) -> float | None:
        """As Operators.bits_per_weight."""
        return self._rounded_bits / self._rounded_weights if self._rounded_weights else None

    @property
    def state_kernels(self) -> CppStateKernels:
        """Those of the same library and dtype."""
        return CppStateKernels(self.library, self.dtype)

    @property
    def grouped_experts(self) -> None:
        """None: reading numbers on the host is free on CPU, and weights are packed expert by expert."""
        return None

    @property
    def quantised_experts(self) -> None:
        """None: reading numbers on the host is free on CPU."""
        return None

    def mixture(self, experts: Sequence[ExpertParts], routing: Routing) -> CppExperts | None:
        """Where the experts have one form of weights, without padding, and an activation of this library."""
        return CppExperts.of(self.library, self.dtype, experts, routing)

    def recorder(self) -> CppRecorder:
        """A new recorder of steps."""
        return CppRecorder(self.library.panel_outputs)

    def choose_products(self, timer: WorkTimer | None) -> None:
        """There is one kernel for all products."""

    def linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """Packs the weight into weight_memory; an odd number of inputs is padded with zeros."""
        if isinstance(weight, torch.Tensor):
            weight = self._layer(weight)
        if isinstance(weight, QuantisedMatrix):
            groups = PackedGroups(self.library, self.weight_memory, weight)
            return CppGroupedLinear(self.library, groups, None if bias is None else bias.to(self.dtype), self.dtype)
        if padding := weight.shape[1] % 2:
            # Products take inputs in pairs. Zeros after the last input change nothing.
            multiply_padded = self.linear(F.pad(weight, (0, padding)), bias)
            return lambda x: multiply_padded(F.pad(x, (0, padding)))
        own_bias = None if bias is None else bias.to(self.dtype).clone()
        return CppLinear(self.library, self._packed(weight.to(self.dtype)), own_bias, weight.shape, self.dtype)

    def linear_by_head(self, weights: torch.Tensor) -> LinearFunction:
        """A product for each head: a row depends on no other, which torch's batched products do not promise."""
        products = [self.linear(weight, None) for weight in weights]
        return lambda x: torch.stack([multiply(x[:, head]) for head, multiply in enumerate(products)], dim=1)

    def head(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """As linear; 8 bits where other weights are rounded to fewer, because errors of logits and of experts' scores
        weigh more."""
        return self.linear(self._head(weight), bias)

    def embedding(self, table: Matrix) -> LinearFunction:
        """Copies the table into weight_memory, in the dtype of activations; a quantised one stays quantised."""
        if isinstance(table, QuantisedMatrix):
            return self._tied_groups(table)[0]
        own = self.weight_memory.empty(table.numel(), self.dtype).view(table.shape)
        if not self.weight_memory.is_filled:
            own.copy_(table)
        return lambda ids: F.embedding(ids, own)

    def tied_embedding(self, table: Matrix) -> tuple[LinearFunction, LinearFunction]:
        """Both read one packed table, unless it has rows of an odd size: of 8 bits where weights are rounded."""
        table = self._head(table)
        if isinstance(table, QuantisedMatrix):
            return self._tied_groups(table)
        size = table.shape[1]
        if size % 2:
            return self.embedding(table), self.head(table, None)
        packed = self._packed(table.to(self.dtype))
        call, num_threads = self._unpack_rows, self.library.num_threads

        def embed(ids: torch.Tensor) -> torch.Tensor:
            rows = torch.empty((len(ids), size), dtype=packed.dtype)
            call(ids.data_ptr(), packed.data_ptr(), rows.data_ptr(), len(ids), size, num_threads)
            return rows

        return embed, CppLinear(self.library, packed, None, table.shape, self.dtype)

    def _tied_groups(self, table: QuantisedMatrix) -> tuple[LinearFunction, LinearFunction]:
        groups = PackedGroups(self.library, self.weight_memory, table)
        multiply = CppGroupedLinear(self.library, groups, None, self.dtype)
        call, num_threads = self.library.function("unpack_grouped", self.dtype), self.library.num_threads

        def embed(ids: torch.Tensor) -> torch.Tensor:
            rows = torch.empty((len(ids), table.shape[1]), dtype=self.dtype)
            call(multiply.grouped_address, ids.data_ptr(), rows.data_ptr(), len(ids), num_threads)
            return rows

        return embed, multiply

    def _layer(self, weight: torch.Tensor) -> Matrix:
        """The weight of a layer, rounded where weights are."""
        if not self._rounding:
            return weight
        form = (RoundedForm.int4 if self._has_int4_weights else RoundedForm.int8)(weight.shape[1])
        self._rounded_weights += weight.numel()
        self._rounded_bits += weight.numel() * form.bits_per_weight
        return self._rounded(weight, form)

    def _head(self, weight: Matrix) -> Matrix:
        """The weight in 8 bits where weights are rounded; one that is quantised stays as it is."""
        if isinstance(weight, QuantisedMatrix) or not self._rounding:
            return weight
        return self._rounded(weight, RoundedForm.head(weight.shape[1]))

    def _rounded(self, weight: torch.Tensor, form: RoundedForm) -> QuantisedMatrix:
        """As `quantised`, without values where weight_memory holds them already."""
        if form.bits == 8 and not self.weight_memory.is_filled:
            matrix = quantised(weight, form.bits, form.group_size)
        else:
            matrix = hollow(weight.shape, form.bits, form.group_size)
        if isinstance(matrix.zeros, torch.Tensor) and not self.weight_memory.is_filled:
            importance = None if self.importance is None else self.importance.popleft()
            for first in range(0, len(weight), _ROUNDED_ROWS):
                exact = weight[first : first + _ROUNDED_ROWS].float().contiguous()
                self.library.round_groups(
                    exact.data_ptr(), 0 if importance is None else importance.data_ptr(),
                    *(part[first:].data_ptr() for part in (matrix.codes, matrix.scales, matrix.zeros)),
                    *exact.shape, form.group_size, form.bits, self.library.num_threads,
                )  # fmt: skip
        return replace(matrix, block_size=form.block_size)

    def _packed(self, weight: torch.Tensor) -> torch.Tensor:
        num_outputs, num_inputs = weight.shape
        num_panels = -(-num_outputs // self.library.panel_outputs)
        packed = self.weight_memory.empty(num_panels * self.library.panel_outputs * num_inputs, weight.dtype)
        if not self.weight_memory.is_filled:
            weight = weight.contiguous()
            pack = self.library.function("pack_linear", weight.dtype)
            pack(weight.data_ptr(), packed.data_ptr(), num_outputs, num_inputs, self.library.num_threads)
        return packed

    def adapter_product(self, shape: AdapterShape) -> CppAdapterProduct:
        """Two phases for all runs of rows (adapters.cpp)."""
        return CppAdapterProduct(self.library, self.dtype, shape.num_slots, shape.num_inputs)

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        """Computed in float32."""
        return CppNorm(self.library, weight.float().contiguous(), None, eps, self.dtype)

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        """Computed in float32."""
        scales, shifts = weight.float().contiguous(), bias.float().contiguous()
        return CppNorm(self.library, scales, shifts, eps, self.dtype)

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """As Operators.argmax."""
        token_ids = torch.empty(logits.shape[0], dtype=torch.int64)
        self._argmax(logits.data_ptr(), logits.stride(0), token_ids.data_ptr(), *logits.shape, self.library.num_threads)
        return token_ids

    def forbid(self, scores: torch.Tensor, masks: TokenMasks) -> None:
        """As ForbidFunction; scores [R, vocab] float32 or bfloat16, with adjacent elements in a row."""
        assert scores.stride(1) == 1
        assert masks.words.flags.c_contiguous
        self._forbid[scores.dtype](
            scores.data_ptr(), scores.stride(0), masks.draws.ctypes.data, masks.words.ctypes.data,
            len(masks.draws), scores.shape[1], self.library.num_threads,
        )  # fmt: skip

    def draw(self, scores: torch.Tensor, wanted: Draws) -> torch.Tensor:
        """As DrawFunction; scores [R, vocab] float32 or bfloat16, with adjacent elements in a row."""
        assert scores.stride(1) == 1
        token_ids = torch.empty(len(wanted.rows), dtype=torch.int64)
        columns = (wanted.rows, wanted.temperatures, wanted.top_k, wanted.top_p, wanted.min_p, wanted.numbers)
        self._draw[scores.dtype](
            scores.data_ptr(), scores.stride(0), *(column.ctypes.data for column in columns), token_ids.data_ptr(),
            len(token_ids), scores.shape[1], self.library.num_threads,
        )  # fmt: skip
        return token_ids
