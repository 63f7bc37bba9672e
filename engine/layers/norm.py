"""Normalisation over the last dimension: root mean square (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016).

A norm stands where a part of the network reads the residual stream, so it also adds what the part before it gave.
"""

from typing import Self

import torch

from engine.kernels.operators import NormFunction
from engine.layers.weights import WeightSource


class RMSNorm:
    def __init__(self, norm: NormFunction) -> None:
        self.norm = norm  #: public for what joins it with others

    @classmethod
    def load(cls, weights: WeightSource, name: str, size: int, eps: float) -> Self:
        return cls(weights.operators.rms_norm(weights.take(f"{name}.weight", size), eps))

    def __call__(self, stream: torch.Tensor, update: torch.Tensor | None = None) -> torch.Tensor:
        """norm(stream + update), both [T, size]; the stream becomes that sum."""
        return self.norm(stream, update)


class LayerNorm:
    def __init__(self, norm: NormFunction) -> None:
        self.norm = norm  #: likewise

    @classmethod
    def load(cls, weights: WeightSource, name: str, size: int, eps: float) -> Self:
        weight, bias = weights.take(f"{name}.weight", size), weights.take(f"{name}.bias", size)
        return cls(weights.operators.layer_norm(weight, bias, eps))

    def __call__(self, stream: torch.Tensor, update: torch.Tensor | None = None) -> torch.Tensor:
        """As RMSNorm."""
        return self.norm(stream, update)
