"""Normalisation over the last dimension: root mean square (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016)."""

from typing import Self

import torch
import torch.nn.functional as F

from engine.layers.weights import WeightSource


class RMSNorm:
    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    @classmethod
    def load(cls, weights: WeightSource, name: str, size: int, eps: float) -> Self:
        return cls(weights.take(f"{name}.weight", size), eps)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self._weight.shape, self._weight, self._eps)


class LayerNorm:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._bias = bias
        self._eps = eps

    @classmethod
    def load(cls, weights: WeightSource, name: str, size: int, eps: float) -> Self:
        return cls(weights.take(f"{name}.weight", size), weights.take(f"{name}.bias", size), eps)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)


class HeadNorm:
    """RMS norm of every query head and every key head with a weight for each of the two (Qwen3)."""

    def __init__(
        self, query_weight: torch.Tensor, key_weight: torch.Tensor, *, num_heads: int, num_kv_heads: int, eps: float
    ) -> None:
        weights = [query_weight.expand(num_heads, -1), key_weight.expand(num_kv_heads, -1)]
        self._weight = torch.cat(weights)  # [num_heads + num_kv_heads, head_dim]
        self._eps = eps

    def __call__(self, heads: torch.Tensor) -> torch.Tensor:
        """heads [T, num_heads + num_kv_heads, head_dim]."""
        return F.rms_norm(heads, heads.shape[-1:], None, self._eps) * self._weight
