"""The two feed-forward forms: gated (Llama, Gemma) and plain (GPT-2)."""

from typing import Protocol

import torch

from engine.kernels.operators import Activation, ClampedGate, Operators
from engine.layers.linear import Linear


def activation_of(name: str, operators: Operators) -> Activation | None:
    """The activation that Hugging Face configs call `name`; None for one that is not implemented."""
    match name:
        case "gelu_new" | "gelu_pytorch_tanh":
            return operators.gelu_tanh
        case "gelu":
            return operators.gelu
        case "relu":
            return operators.relu
        case _:
            return None


def clamped(gate: ClampedGate) -> Activation:
    """x [R, 2 * size], gates first -> [R, size], in plain torch and in float32."""

    def activate(gate_up: torch.Tensor) -> torch.Tensor:
        gates, ups = gate_up.float().chunk(2, dim=-1)
        gates, ups = gates.clamp(max=gate.limit), ups.clamp(-gate.limit, gate.limit)
        return (gates * torch.sigmoid(gate.alpha * gates) * (ups + 1.0)).to(gate_up.dtype)

    return activate


class FeedForward(Protocol):
    """The second part of a layer: an MLP or a mixture of experts."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        ...


class GatedMLP:
    """down(activation(gate(x)) * up(x)); gate and up are one product, side by side."""

    def __init__(self, gate_up: Linear, down: Linear, activate_and_multiply: Activation) -> None:
        self.up = gate_up
        self.down = down
        self.activation = activate_and_multiply

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self.completed(self.partial(x))

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This process's part of the output, for a caller that adds several experts before it completes the sum."""
        return self.down.partial(self.activation(self.up(x)))

    def completed(self, partial: torch.Tensor) -> torch.Tensor:
        """`partial` plus the parts of the other processes; overwrites it."""
        return self.down.completed(partial)


class MLP:
    """down(activation(up(x)))."""

    def __init__(self, up: Linear, down: Linear, activation: Activation) -> None:
        self.up = up
        self.down = down
        self.activation = activation

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self.down.completed(self.partial(x))

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """As GatedMLP.partial."""
        return self.down.partial(self.activation(self.up(x)))
