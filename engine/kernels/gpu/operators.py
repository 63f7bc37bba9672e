"""The operators on CUDA devices: norms, activations, experts and recurrent states in Triton, products by cuBLAS, or for
few rows in Triton where that is faster (products.py)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from engine.kernels.gpu import activation, choose_experts, grouped_experts, norm, state_kernels
from engine.kernels.gpu.layer_recorder import LayerRecorder
from engine.kernels.gpu.products import Products
from engine.kernels.gpu.skinny_product import Activation
from engine.kernels.operators import (
    PLAIN_EXPERTS,
    ExpertOptions,
    ExpertParts,
    ExpertsFunction,
    GroupedExperts,
    LinearFunction,
    NormFunction,
    Routing,
    WorkTimer,
)
from engine.kernels.quantised import Matrix, QuantisedMatrix
from engine.kernels.state_kernels import StateKernels
from engine.kernels.torch_operators import products_by_head, quantised_linear


class GpuOperators:
    """The Operators on CUDA with Triton."""

    def __init__(self, products: Products | None = None) -> None:
        """products: tests and benchmarks pass their own."""
        self._products = products or Products()

    @property
    def name(self) -> str:
        """For logs and metrics: with the number of weights' shapes whose products of few rows are ours."""
        summary = self._products.summary
        return f"triton, {summary}" if summary else "triton"

    @property
    def grouped_experts(self) -> GroupedExperts:
        """The Triton kernels of choose_experts.py and grouped_experts.py: five launches."""

        def bind(
            gate_up: torch.Tensor, down: torch.Tensor, routing: Routing, options: ExpertOptions = PLAIN_EXPERTS
        ) -> ExpertsFunction:
            def mix(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
                chosen, weights = choose_experts.choose_experts(scores, routing)
                return grouped_experts.grouped_experts(x, chosen, weights, gate_up, down, options)

            return mix

        return bind

    def mixture(self, experts: Sequence[ExpertParts], routing: Routing) -> None:
        """None: grouped_experts has all experts but quantised ones, each of which is called by itself."""
        return None

    def recorder(self) -> LayerRecorder:
        """Records layers for steps of few rows."""
        return LayerRecorder({self.silu_mul: Activation.SILU_MUL, self.gelu_tanh_mul: Activation.GELU_TANH_MUL})

    def choose_products(self, timer: WorkTimer | None) -> None:
        """By the architecture's table, else by the timer."""
        self._products.choose(timer)

    @property
    def state_kernels(self) -> StateKernels:
        """The kernels in Triton."""
        return state_kernels

    def linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """A product of cuBLAS, or of our own kernel for few rows: see choose_products. A quantised weight stays
        quantised, and each product computes its weights in plain torch."""
        if isinstance(weight, QuantisedMatrix):
            return quantised_linear(weight, bias, lambda part: lambda x: F.linear(x, part))
        return self._products.bind(weight, bias)

    def linear_by_head(self, weights: torch.Tensor) -> LinearFunction:
        """One batched product of cuBLAS."""
        return products_by_head(weights)

    def head(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """As linear."""
        return self.linear(weight, bias)

    def embedding(self, table: Matrix) -> LinearFunction:
        """Looks up rows of the table itself."""
        if isinstance(table, QuantisedMatrix):
            return table.in_memory().rows
        return lambda ids: F.embedding(ids, table)

    def tied_embedding(self, table: Matrix) -> tuple[LinearFunction, LinearFunction]:
        """Both read the table itself."""
        return self.embedding(table), self.linear(table, None)

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
    def draw(self) -> None:
        """None: the sampler draws in plain torch."""
        return None

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """logits [R, vocab] -> [R] int64; of equal logits the first."""
        return logits.argmax(dim=-1)
