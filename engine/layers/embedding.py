"""Tables whose rows are looked up by id: token embeddings (with the output head) and learned positions.

Tensor parallelism divides the token embedding and the head by vocabulary: the head is the largest matrix that a step
reads, a tied matrix is kept once, and the sum of one process's row and the others' zeros is exact.
"""

import logging
from typing import Self

import torch
import torch.nn.functional as F

from engine.kernels.operators import LinearFunction
from engine.kernels.quantised import Matrix, QuantisedMatrix
from engine.layers.weights import WeightSource
from engine.parallel.group import Group
from engine.parallel.shard import Shard

_log = logging.getLogger(__name__)

_TIED_HEAD = "lm_head"  #: name of the head where it is stored beside or in place of the embedding


class Embedding:
    """A table that every process holds whole (learned positions)."""

    def __init__(self, rows_of: LinearFunction) -> None:
        self._rows_of = rows_of

    @classmethod
    def load(cls, weights: WeightSource, name: str, num_rows: int, size: int) -> Self:
        """Takes `name`.weight [num_rows, size]."""
        return cls(weights.operators.embedding(weights.take_matrix(f"{name}.weight", num_rows, size)))

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """ids [T] -> [T, size]."""
        return self._rows_of(ids)


class TokenEmbedding:
    """The token embedding and the output head; a tied matrix is kept once."""

    def __init__(self, embed: LinearFunction, head: LinearFunction) -> None:
        self._embed = embed
        self._head = head

    @classmethod
    def load(
        cls,
        weights: WeightSource,
        name: str,
        num_tokens: int,
        size: int,
        *,
        head: str | None,
        has_head_bias: bool = False,
    ) -> Self:
        """head: name of the output head's tensor; None: it is tied to the embedding, and has no bias.

        As in transformers, a head that the checkpoint holds with other values is not tied, and a checkpoint may hold
        the head in place of the embedding.
        """
        if head is None:
            if weights.has_own_head(_TIED_HEAD, name):
                _log.warning("the config ties the output head to the embedding, but the checkpoint has both: not tied")
                head = _TIED_HEAD
            elif f"{name}.weight" not in weights and f"{_TIED_HEAD}.weight" in weights:
                name = _TIED_HEAD
        group = weights.group
        shard = Shard.padded(num_tokens, group.place)
        length = -(-num_tokens // group.place.size)  # rows of every process, so that their logits can be joined

        def take(matrix: str) -> Matrix:
            rows = weights.take_linear_weight(matrix, num_tokens if shard.is_whole else shard, size)
            if shard.held == length:
                return rows
            if isinstance(rows, QuantisedMatrix):
                return rows.padded_outputs(length)
            return F.pad(rows, (0, 0, 0, length - shard.held))

        table = take(name)
        embed: LinearFunction
        if head is None:
            embed, multiply = weights.operators.tied_embedding(table)
        else:
            bias = None
            if has_head_bias:
                bias = weights.take(f"{head}.bias", num_tokens if shard.is_whole else shard)
                bias = F.pad(bias, (0, length - shard.held))
            embed, multiply = weights.operators.embedding(table), weights.operators.head(take(head), bias)
        if shard.is_whole:
            return cls(embed, multiply)
        return cls(_embed_parts(embed, shard, group), _join_logits(multiply, num_tokens, group))

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        """token_ids [T] -> [T, size], newly allocated."""
        return self._embed(token_ids)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [R, size] -> [R, num_tokens]."""
        return self._head(hidden)


def _embed_parts(embed: LinearFunction, shard: Shard, group: Group) -> LinearFunction:
    (start, end), *_ = shard.ranges

    def embed_all(token_ids: torch.Tensor) -> torch.Tensor:
        is_foreign = (token_ids < start) | (token_ids >= end)
        rows = embed((token_ids - start).masked_fill_(is_foreign, 0))
        return group.sum(rows.masked_fill_(is_foreign[:, None], 0.0))

    return embed_all


def _join_logits(multiply: LinearFunction, num_tokens: int, group: Group) -> LinearFunction:
    def multiply_all(hidden: torch.Tensor) -> torch.Tensor:
        parts = group.join(multiply(hidden))  # [size, R, length]
        return parts.transpose(0, 1).flatten(1)[:, :num_tokens].contiguous()

    return multiply_all
