"""Rows of a table by id: token embeddings, learned positions."""

from typing import Self

import torch
import torch.nn.functional as F

from engine.layers.weights import WeightSource


class Embedding:
    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight  #: [rows, size]; public because a tied output head shares it

    @classmethod
    def load(cls, weights: WeightSource, name: str, num_rows: int, size: int) -> Self:
        return cls(weights.take(f"{name}.weight", num_rows, size))

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self.weight)
