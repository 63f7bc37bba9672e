"""The operators that layers are made of, behind one protocol: plain torch, C++ where this machine could build it, or
Triton on CUDA.

One set is chosen when a model is loaded (kernels/__init__.py) and travels with its weights. Operators that have weights
bind them once, in whatever layout they like. R = rows, T = tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from engine.kernels.state_kernels import StateKernels

#: x [R, in] -> [R, out]
LinearFunction = Callable[[torch.Tensor], torch.Tensor]
#: (stream [R, size], update [R, size] or None) -> norm of stream + update [R, size]; the stream becomes that sum.
NormFunction = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]

#: x [R, n] -> [R, m]
Activation = Callable[[torch.Tensor], torch.Tensor]
#: RMS norm of every query head and every key head: their weights [D] float32, and epsilon.
HeadNormWeights = tuple[torch.Tensor, torch.Tensor, float]


@dataclass(frozen=True, slots=True)
class Draws:
    """Rows of scores from which one token each is drawn, and how: contiguous, one element for each draw."""

    rows: NDArray[np.int64]
    temperatures: NDArray[np.float32]
    top_k: NDArray[np.int64]  #: 0: off
    top_p: NDArray[np.float32]  #: 1: off
    min_p: NDArray[np.float32]  #: 0: off
    numbers: NDArray[np.float64]  #: in [0, 1): the token is where the cumulative distribution passes it


#: (scores [R, vocab] float32 or of the model's dtype, draws) -> token ids [draws]
DrawFunction = Callable[[torch.Tensor, Draws], torch.Tensor]


class Recorder(Protocol):
    """Takes down the parts of decoder layers, to be run together in one call by an attention step (RunsRecordings)."""

    def attention(
        self,
        norm: NormFunction,
        qkv: LinearFunction,
        layer_id: int,
        rotation: int | None,
        head_norms: HeadNormWeights | None,
        output: LinearFunction,
        output_norm: NormFunction | None,
        *,
        has_update: bool,
    ) -> bool:
        """update = output_norm(output(attention(qkv(norm(stream, update))))). rotation: which of the run's.

        False, and nothing is taken down, where some operator is none of those that can be.
        """
        ...

    def feed_forward(
        self,
        norm: NormFunction,
        up: LinearFunction,
        activation: Activation,
        down: LinearFunction,
        output_norm: NormFunction | None,
        *,
        is_parallel: bool,
    ) -> bool:
        """update = output_norm(down(activation(up(norm(stream, update))))), likewise.

        is_parallel: update += down(activation(up(norm(stream)))).
        """
        ...


class Operators(Protocol):
    @property
    def name(self) -> str:
        """For logs and metrics: "torch", "triton", or "cpp" and the instruction set."""
        ...

    @property
    def state_kernels(self) -> StateKernels | None:
        """What recurrent layers compute with; None: plain torch on states that were read out of their pages."""
        ...

    @property
    def routes_on_device(self) -> bool:
        """Whether experts should be chosen without a look at numbers, because that waits for a device."""
        ...

    def recorder(self) -> Recorder | None:
        """A new one; None where every operator is a call of its own."""
        ...

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
        """weight [out, in], bias [out]. Neither is referred to afterwards where the layout is another."""
        ...

    def embedding(self, table: torch.Tensor) -> LinearFunction:
        """table [rows, size]: ids [T] -> rows [T, size]."""
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

    @property
    def silu_mul(self) -> Activation:
        """x [R, 2 * size], gates first -> silu(gate) * up [R, size]."""
        ...

    @property
    def gelu_tanh_mul(self) -> Activation: ...

    @property
    def gelu_tanh(self) -> Activation:
        """x [R, size] -> [R, size]."""
        ...

    @property
    def gelu(self) -> Activation: ...

    @property
    def relu(self) -> Activation: ...

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """logits [R, vocab] -> [R] int64, the first of equal ones."""
        ...

    @property
    def draw(self) -> DrawFunction | None:
        """None: the sampler draws in plain torch."""
        ...
