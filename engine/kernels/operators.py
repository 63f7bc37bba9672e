"""The operators that layers are made of, behind one protocol: plain torch, C++ where this machine could build it, or
Triton on CUDA.

One set is chosen when a model is loaded (kernels/__init__.py) and travels with its weights. Operators that have weights
bind them once, in whatever layout they like. R = rows, T = tokens.
"""

from collections.abc import Callable
from typing import Protocol

import torch

from engine.kernels.state_kernels import StateKernels

#: x [R, in] -> [R, out]
LinearFunction = Callable[[torch.Tensor], torch.Tensor]
#: (stream [R, size], update [R, size] or None) -> norm of stream + update [R, size]; the stream becomes that sum.
NormFunction = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]

#: x [R, n] -> [R, m]
Activation = Callable[[torch.Tensor], torch.Tensor]


class Operators(Protocol):
    @property
    def name(self) -> str:
        """For logs and metrics: "torch", "triton", or "cpp" and the instruction set."""
        ...

    @property
    def state_kernels(self) -> StateKernels | None:
        """What recurrent layers compute with; None: plain torch on states that were read out of their pages."""
        ...

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
        """weight [out, in], bias [out]. Neither is referred to afterwards where the layout is another."""
        ...

    def tied_embedding(self, table: torch.Tensor) -> tuple[LinearFunction, LinearFunction]:
        """table [tokens, size]: ids [T] -> rows [T, size], and x [R, size] -> x table^T [R, tokens].

        Both read one memory where the layout allows it.
        """
        ...

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        """weight [size], of the model's dtype or float32."""
        ...

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction: ...

    def norm_linear(self, norm: NormFunction, linear: LinearFunction) -> NormFunction:
        """linear(norm(stream, update)), both made by these operators, in as few calls as may be."""
        ...

    def gated_mlp(
        self, norm: NormFunction, gate_up: LinearFunction, down: LinearFunction, activation: Activation
    ) -> NormFunction:
        """down(activation(gate_up(norm(stream, update)))); activation: silu_mul or gelu_tanh_mul of these operators."""
        ...

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [R, 2 * size], gates first -> silu(gate) * up [R, size]."""
        ...

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor: ...

    def gelu_tanh(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, size] -> [R, size]."""
        ...

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """logits [R, vocab] -> [R] int64, the first of equal ones."""
        ...
