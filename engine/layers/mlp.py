"""The two feed-forward forms: gated (Llama, Gemma) and plain (GPT-2)."""

from typing import Protocol

import torch
import torch.nn.functional as F

from engine.kernels.operators import Activation, NormFunction, Operators
from engine.layers.linear import Linear
from engine.layers.norm import LayerNorm, RMSNorm


def activation_of(name: str, operators: Operators) -> Activation | None:
    """By the names of Hugging Face configs; None for one that we do not have."""
    match name:
        case "gelu_new" | "gelu_pytorch_tanh":
            return operators.gelu_tanh
        case "gelu":
            return F.gelu
        case "relu":
            return F.relu
        case _:
            return None


class FeedForward(Protocol):
    """What stands behind the second norm of a layer."""

    def behind(self, norm: RMSNorm, operators: Operators) -> NormFunction:
        """The whole of both: (stream, update) -> the part's own update [T, hidden]."""
        ...


class GatedMLP:
    """down(activation(gate(x)) * up(x)); gate and up are one product, side by side."""

    def __init__(self, gate_up: Linear, down: Linear, activate_and_multiply: Activation) -> None:
        self._gate_up = gate_up
        self._down = down
        self._activate_and_multiply = activate_and_multiply

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.completed(self.partial(x))

    def behind(self, norm: RMSNorm, operators: Operators) -> NormFunction:
        parts = self._gate_up.multiply, self._down.multiply
        return self._down.completing(operators.gated_mlp(norm.norm, *parts, self._activate_and_multiply))

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This process's part of the output, for a caller that adds up several of them before it completes the sum."""
        return self._down.multiply(self._activate_and_multiply(self._gate_up(x)))

    def completed(self, partial: torch.Tensor) -> torch.Tensor:
        return self._down.completed(partial)


class MLP:
    """down(activation(up(x)))."""

    def __init__(self, up: Linear, down: Linear, activation: Activation) -> None:
        self._up = up
        self._down = down
        self._activation = activation

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._down(self._activation(self._up(x)))

    def behind(self, norm: LayerNorm, operators: Operators) -> NormFunction:
        up = operators.norm_linear(norm.norm, self._up.multiply)
        return lambda stream, update: self._down(self._activation(up(stream, update)))
