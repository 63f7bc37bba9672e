"""Rows of a table by id: token embeddings with the output head, learned positions."""

from typing import Self

import torch
import torch.nn.functional as F

from engine.kernels.operators import LinearFunction
from engine.layers.weights import WeightSource


class Embedding:
    def __init__(self, weight: torch.Tensor) -> None:
        """weight [rows, size]."""
        self._weight = weight

    @classmethod
    def load(cls, weights: WeightSource, name: str, num_rows: int, size: int) -> Self:
        return cls(weights.take(f"{name}.weight", num_rows, size))

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self._weight)


class TokenEmbedding:
    """From tokens into the network and back out of it: in many checkpoints one matrix, kept once where that is so."""

    def __init__(self, embed: LinearFunction, head: LinearFunction) -> None:
        self._embed = embed
        self._head = head

    @classmethod
    def load(cls, weights: WeightSource, name: str, num_tokens: int, size: int, *, head: str | None) -> Self:
        """head: the output head's own tensor; None: it is the embedding."""
        table = weights.take(f"{name}.weight", num_tokens, size)
        if head is None:
            return cls(*weights.operators.tied_embedding(table))
        return cls(Embedding(table), weights.operators.linear(weights.take(f"{head}.weight", num_tokens, size), None))

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        """token_ids [T] -> [T, size], memory of its own."""
        return self._embed(token_ids)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [R, size] -> [R, num_tokens]."""
        return self._head(hidden)
