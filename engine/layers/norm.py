"""Normalisation over the last dimension: root mean square (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016).

A norm stands where a part of the network reads the residual stream, so it also adds the previous part's output to it.
"""

from typing import Self

import torch

from engine.kernels.operators import NormFunction
from engine.layers.weights import WeightSource


class Norm:
    """norm(stream + update), bound to its weights."""

    def __init__(self, norm: NormFunction) -> None:
        self.norm = norm  #: public: recorders put it into a list of steps

    def __call__(self, stream: torch.Tensor, update: torch.Tensor | None = None) -> torch.Tensor:
        """norm(stream + update), both [T, size]; the stream becomes that sum."""
        return self.norm(stream, update)


class RMSNorm(Norm):
    """Divides by the root mean square, then multiplies by a scale for each channel."""

    @classmethod
    def load(cls, weights: WeightSource, name: str, size: int, eps: float) -> Self:
        """Takes `name`.weight [size]."""
        return cls(weights.operators.rms_norm(weights.take(f"{name}.weight", size), eps))

    @classmethod
    def around_one(cls, weights: WeightSource, name: str, size: int, eps: float) -> Self:
        """As load, with scales_around_one."""
        return cls(weights.operators.rms_norm(scales_around_one(weights, name, size), eps))


class LayerNorm(Norm):
    """Subtracts the mean and divides by the standard deviation, then scales and shifts each channel."""

    @classmethod
    def load(cls, weights: WeightSource, name: str, size: int, eps: float) -> Self:
        """Takes `name`.weight and `name`.bias, both [size]."""
        weight, bias = weights.take(f"{name}.weight", size), weights.take(f"{name}.bias", size)
        return cls(weights.operators.layer_norm(weight, bias, eps))

    @classmethod
    def without_bias(cls, weights: WeightSource, name: str, size: int, eps: float) -> Self:
        """Takes `name`.weight [size]; nothing is added to the scaled channels."""
        weight = weights.take(f"{name}.weight", size)
        return cls(weights.operators.layer_norm(weight, torch.zeros_like(weight), eps))


def scales_around_one(weights: WeightSource, name: str, size: int) -> torch.Tensor:
    """Takes `name`.weight [size] of a norm whose checkpoints store its scales minus one. The sum stays in float32,
    where it loses nothing."""
    return weights.take(f"{name}.weight", size).float() + 1.0
