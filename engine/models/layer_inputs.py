"""Inputs of layers beside the stream (per-layer embeddings) of Gemma 3n and Gemma 4."""

import torch

from engine.layers.embedding import Embedding
from engine.layers.linear import Linear
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource


class LayerInputs:
    """The inputs of all layers: the mean of an embedding of the token and a projection of its embedding in the stream,
    times the square root of two."""

    def __init__(
        self,
        weights: WeightSource,
        *,
        num_layers: int,
        size: int,
        hidden: int,
        num_tokens: int,
        vocab_size: int,
        eps: float,
    ) -> None:
        """size: channels of a layer's input. num_tokens: rows of the embedding; ids from there on, of images and
        sounds, have the row of id 0."""
        self._size = size
        self._num_tokens = num_tokens if num_tokens < vocab_size else None
        self._tokens = Embedding.load(weights, "model.embed_tokens_per_layer", num_tokens, num_layers * size)
        self._token_scale = rounded(size**0.5, weights)
        self._project = Linear.load(weights, "model.per_layer_model_projection", hidden, num_layers * size, bias=False)
        self._projection_scale = hidden**-0.5
        self._norm = RMSNorm.load(weights, "model.per_layer_projection_norm", size, eps)

    def __call__(self, token_ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """token_ids [T], hidden [T, hidden] -> [T, layers, size]."""
        if self._num_tokens is not None:
            token_ids = token_ids.masked_fill(token_ids >= self._num_tokens, 0)
        projected = (self._project(hidden) * self._projection_scale).view(-1, self._size)
        inputs = self._norm(projected).view(len(hidden), -1, self._size)
        tokens = (self._tokens(token_ids) * self._token_scale).view(inputs.shape)
        return inputs.add_(tokens).mul_(2.0**-0.5)


def rounded(factor: float, weights: WeightSource) -> float:
    """The factor on embeddings as the checkpoints were trained: 55.5 and not 55.4256 for 3,072 channels in bfloat16."""
    return torch.tensor(factor).to(weights.dtype).item()
