"""The operators on CUDA devices: norms, activations, experts and recurrent states in Triton, products by cuBLAS, or for
few rows in Triton where that is faster (products.py). Quantised weights have products of their own
(quantised_products.py)."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F

from engine.errors import CheckpointError
from engine.kernels.gpu import activation, choose_experts, grouped_experts, norm, quantised_experts, state_kernels
from engine.kernels.gpu.adapters import GpuAdapterProduct
from engine.kernels.gpu.layer_recorder import LayerRecorder
from engine.kernels.gpu.packed_codes import packed
from engine.kernels.gpu.products import Products
from engine.kernels.gpu.quantised_experts import PackedExperts
from engine.kernels.gpu.quantised_products import QuantisedProducts
from engine.kernels.gpu.skinny_product import Activation
from engine.kernels.operators import (
    PLAIN_EXPERTS,
    AdapterShape,
    ExpertOptions,
    ExpertParts,
    ExpertsFunction,
    GroupedExperts,
    LinearFunction,
    NormFunction,
    QuantisedExperts,
    Routing,
    WorkTimer,
)
from engine.kernels.quantised import Matrix, QuantisedMatrix, QuantisedStack, quantised
from engine.kernels.state_kernels import StateKernels
from engine.kernels.torch_operators import likeliest_tokens, products_by_head, quantised_linear

_PLAIN_BITS, _HEAD_BITS = 16, 8
#: Inputs that share a scale where weights are rounded to 4 bits, and in the head's 8 bits beside them. With 8 bits in
#: all weights there is one scale for each output.
_GROUPS = {4: 64, 8: 128}
_SCALE_BITS = 32  #: of a scale and its zero point


class GpuOperators:
    """The Operators on CUDA with Triton."""

    def __init__(
        self,
        products: Products | None = None,
        quantised: QuantisedProducts | None = None,
        *,
        has_int8_weights: bool = False,
        has_int4_weights: bool = False,
        is_batch_invariant: bool = False,
    ) -> None:
        """products, quantised: tests and benchmarks pass their own. has_int8_weights, has_int4_weights: weights of 16
        bits are rounded. is_batch_invariant: as Products.is_batch_invariant, which decides where products are given;
        what has other kernels or tiles for other numbers of rows raises CheckpointError."""
        self._products = products or Products(is_batch_invariant=is_batch_invariant)
        self._quantised = quantised or QuantisedProducts(self._products.workspace)
        self._bits = 8 if has_int8_weights else 4 if has_int4_weights else 16
        self._rounded_weights = self._rounded_bits = 0  # of layers

    @property
    def name(self) -> str:
        """For logs and metrics: with the number of weights' shapes whose products of few rows are ours."""
        summaries = filter(None, (self._products.summary, self._quantised.summary))
        return ", ".join((f"triton{'' if self._bits == _PLAIN_BITS else f'-int{self._bits}'}", *summaries))

    @property
    def bits_per_weight(self) -> float | None:
        """As Operators.bits_per_weight."""
        return self._rounded_bits / self._rounded_weights if self._rounded_weights else None

    def _needs_tiles_by_rows(self, what: str) -> None:
        if self._products.is_batch_invariant:
            raise CheckpointError(f"batch_invariant is not offered on CUDA for {what}")

    @property
    def grouped_experts(self) -> GroupedExperts:
        """The Triton kernels of choose_experts.py and grouped_experts.py: five launches. Where weights are rounded,
        those of experts are, too."""
        self._needs_tiles_by_rows("models with experts")

        def bind(
            gate_up: torch.Tensor, down: torch.Tensor, routing: Routing, options: ExpertOptions = PLAIN_EXPERTS
        ) -> ExpertsFunction:
            if self._bits != _PLAIN_BITS:
                stacks = [self._rounded_stack(matrices) for matrices in (gate_up, down)]
                mixture = self.quantised_experts(stacks[0], stacks[1], routing, options)
                assert mixture is not None, "kernels decode what is rounded here"
                return mixture

            def mix(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
                chosen, weights = choose_experts.choose_experts(scores, routing)
                return grouped_experts.grouped_experts(x, chosen, weights, gate_up, down, options)

            return mix

        return bind

    @property
    def quantised_experts(self) -> QuantisedExperts:
        """The same with quantised_experts.py: five launches, too."""
        self._needs_tiles_by_rows("models with experts")

        def bind(
            gate_up: QuantisedStack, down: QuantisedStack, routing: Routing, options: ExpertOptions = PLAIN_EXPERTS
        ) -> ExpertsFunction | None:
            gate_ups = PackedExperts.of(gate_up)
            downs = None if gate_ups is None else PackedExperts.of(down)
            if gate_ups is None or downs is None:
                return None

            def mix(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
                chosen, weights = choose_experts.choose_experts(scores, routing)
                return quantised_experts.quantised_experts(x, chosen, weights, gate_ups, downs, options)

            return mix

        return bind

    def _rounded_stack(self, matrices: torch.Tensor) -> QuantisedStack:
        def rounded(index: int) -> QuantisedMatrix:
            matrix = self._rounded(matrices[index], self._bits)
            assert isinstance(matrix, QuantisedMatrix)
            return matrix

        return QuantisedStack(len(matrices), rounded)

    def mixture(self, experts: Sequence[ExpertParts], routing: Routing) -> None:
        """None: grouped_experts has most experts; the others are called one by one."""
        self._needs_tiles_by_rows("models with experts")
        return None

    def recorder(self) -> LayerRecorder:
        """Records layers for decode steps."""
        return LayerRecorder({self.silu_mul: Activation.SILU_MUL, self.gelu_tanh_mul: Activation.GELU_TANH_MUL})

    def choose_products(self, timer: WorkTimer | None) -> None:
        """By the architecture's table, else by the timer."""
        self._products.choose(timer)
        self._quantised.choose(timer)

    @property
    def state_kernels(self) -> StateKernels:
        """The kernels in Triton."""
        self._needs_tiles_by_rows("models with recurrent layers")
        return state_kernels

    def linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """A product of cuBLAS, or of our own kernel for few rows: see choose_products. A quantised weight stays
        quantised, in the layout of packed_codes; one with a code book that kernels do not have is decoded in plain
        torch in each product."""
        return self._linear(self._rounded(weight, self._bits), bias)

    def _rounded(self, weight: Matrix, bits: int) -> Matrix:
        """A weight of 16 bits in that many; one that is quantised stays as it is."""
        if isinstance(weight, QuantisedMatrix) or bits == _PLAIN_BITS:
            return weight
        group_size = weight.shape[1] if self._bits == _HEAD_BITS else _GROUPS[bits]
        rounded = quantised(weight, bits, group_size)
        if bits == self._bits:
            self._rounded_weights += weight.numel()
            self._rounded_bits += weight.numel() * bits + rounded.scales.numel() * _SCALE_BITS
        return replace(rounded, dtype=weight.dtype)

    def _linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        if isinstance(weight, torch.Tensor):
            return self._products.bind(weight.contiguous() if self._products.is_batch_invariant else weight, bias)
        self._needs_tiles_by_rows("quantised weights")
        codes = packed(weight)
        if codes is None:
            return quantised_linear(weight, bias, lambda part: lambda x: F.linear(x, part))
        return self._quantised.bind(codes, bias)

    def linear_by_head(self, weights: torch.Tensor) -> LinearFunction:
        """One batched product of cuBLAS."""
        self._needs_tiles_by_rows("latent attention")
        return products_by_head(weights)

    def head(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """As linear; 8 bits where other weights are rounded to 4."""
        return self._linear(self._rounded(weight, max(self._bits, _HEAD_BITS)), bias)

    def embedding(self, table: Matrix) -> LinearFunction:
        """Looks up rows of the table itself."""
        if isinstance(table, torch.Tensor):
            return lambda ids: F.embedding(ids, table)
        codes = packed(table)
        return table.in_memory().rows if codes is None else self._quantised.embedding(codes)

    def tied_embedding(self, table: Matrix) -> tuple[LinearFunction, LinearFunction]:
        """Both read the same table. One that is rounded here is kept beside it, as its rows are too inexact for
        embeddings."""
        if isinstance(table, QuantisedMatrix) and (codes := packed(table)) is not None:
            self._needs_tiles_by_rows("quantised weights")
            return self._quantised.embedding(codes), self._quantised.bind(codes, None)
        return self.embedding(table), self.head(table, None)

    def adapter_product(self, shape: AdapterShape) -> GpuAdapterProduct:
        """The Triton kernels of adapters.py: two launches."""
        self._needs_tiles_by_rows("adapters")
        return GpuAdapterProduct(shape)

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        """A Triton kernel, with the update added on the way."""
        return norm.RMSNorm(weight, eps)

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        """A Triton kernel, with the update added on the way."""
        return lambda stream, update: norm.layer_norm(stream, update, weight, bias, eps)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [R, 2 * size], gates first -> silu(gate) * up [R, size]."""
        return activation.silu_mul(gate_up)

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """As silu_mul, with gelu in its tanh form."""
        return activation.gelu_tanh_mul(gate_up)

    def gelu_tanh(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, size] -> [R, size]: gelu in its tanh form."""
        return activation.gelu_tanh(x)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, size] -> [R, size]: gelu with the error function."""
        return F.gelu(x)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, size] -> [R, size]."""
        return F.relu(x)

    @property
    def forbid(self) -> None:
        """None: the sampler applies masks in plain torch."""
        return None

    @property
    def draw(self) -> None:
        """None: the sampler draws in plain torch."""
        return None

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """As Operators.argmax."""
        return likeliest_tokens(logits)
