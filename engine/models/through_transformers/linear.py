"""Linear layers of transformers' code on Agon's operators: packed once, and in int8 where that is asked for."""

from typing import Any

import torch

from engine.kernels.operators import LinearFunction, Operators


class OperatorLinear(torch.nn.Module):
    """In place of torch.nn.Linear. Its weight is not there: code that reads it fails, instead of computing wrongly."""

    def __init__(self, multiply: LinearFunction, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self._multiply = multiply

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., in] -> [..., out]."""
        rows = x.reshape(-1, self.in_features).contiguous()
        return self._multiply(rows).view(*x.shape[:-1], self.out_features)


def replace_linear_layers(model: Any, operators: Operators) -> None:
    """Hand every linear layer of the model to the operators, one after the other, so that the weights are in memory
    twice for one layer only."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is torch.nn.Linear:
                multiply = operators.linear(layer.weight.detach(), None if layer.bias is None else layer.bias.detach())
                setattr(parent, name, OperatorLinear(multiply, layer.in_features, layer.out_features))
