"""The two feed-forward forms: gated (Llama) and plain (GPT-2)."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F

from engine.layers.linear import Linear

Activation = Callable[[torch.Tensor], torch.Tensor]
gelu_tanh: Activation = partial(F.gelu, approximate="tanh")

#: By the names of Hugging Face configs.
ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": F.gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": F.relu,
}


class GatedMLP:
    """down(activation(gate(x)) * up(x)); gate and up are one product, side by side."""

    def __init__(self, gate_up: Linear, down: Linear, activation: Activation = F.silu) -> None:
        self._gate_up = gate_up
        self._down = down
        self._activation = activation

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(self._activation(gate).mul_(up))


class MLP:
    """down(activation(up(x)))."""

    def __init__(self, up: Linear, down: Linear, activation: Activation) -> None:
        self._up = up
        self._down = down
        self._activation = activation

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._down(self._activation(self._up(x)))
