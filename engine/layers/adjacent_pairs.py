"""Checkpoints whose rotary embedding turns adjacent channels (GPT-J, Cohere, GLM), not channels half a head apart.

Attention does not depend on the order of a head's channels, as long as queries and keys have the same. So the rows of
their projections are brought into Llama's order when they are loaded, and no kernel knows of another one.
"""

import re

import torch

from engine.kernels.quantised import Matrix, QuantisedMatrix
from engine.layers.weights import PassedOn, WeightSource
from engine.parallel.shard import Size

_QUERIES_AND_KEYS = re.compile(r".*\.[qk]_(proj|norm)\.(weight|bias)")


class AdjacentPairs(PassedOn):
    """Weights in which queries and keys have their rotated channels in pairs (2 i, 2 i + 1); handed out with the pairs
    (i, i + R / 2) that Rotation turns. R = rotated channels of a head."""

    def __init__(self, weights: WeightSource, *, head_dim: int, num_rotated: int) -> None:
        """num_rotated: R; the channels after them keep their places."""
        super().__init__(weights)
        self._head_dim = head_dim
        self._num_rotated = num_rotated

    def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
        """As WeightSource.take. A process holds whole heads, so each part is reordered by itself."""
        return self._reordered(name, super().take(name, *shape, dtype=dtype))

    def take_matrix(self, name: str, *shape: Size) -> torch.Tensor:
        """As WeightSource.take_matrix."""
        return self._reordered(name, super().take_matrix(name, *shape))

    def take_linear_weight(self, layer: str, out_features: Size, in_features: Size) -> Matrix:
        """As WeightSource.take_linear_weight."""
        name, matrix = f"{layer}.weight", super().take_linear_weight(layer, out_features, in_features)
        if isinstance(matrix, QuantisedMatrix):
            return matrix[self._reordered(name, torch.arange(matrix.shape[0]))]
        return self._reordered(name, matrix)

    def output_order(self, layer: str, num_outputs: int) -> torch.Tensor | None:
        """As WeightSource.output_order."""
        name = f"{layer}.weight"
        return self._reordered(name, torch.arange(num_outputs)) if _QUERIES_AND_KEYS.fullmatch(name) else None

    def _reordered(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Projections [heads * D, in], their biases [heads * D], scales of norms [D], or of each head [heads, D]."""
        if tensor.is_meta or not _QUERIES_AND_KEYS.fullmatch(name):
            return tensor
        dim = 1 if "_norm." in name and tensor.dim() == 2 else 0
        heads = tensor.unflatten(dim, (-1, self._head_dim))  # [..., heads, D, ...]
        rotated = heads.narrow(dim + 1, 0, self._num_rotated).unflatten(dim + 1, (-1, 2))
        first, second = rotated.unbind(dim + 2)
        rest = heads.narrow(dim + 1, self._num_rotated, self._head_dim - self._num_rotated)
        return torch.cat((first, second, rest), dim=dim + 1).flatten(dim, dim + 1)
