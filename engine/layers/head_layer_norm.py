"""LayerNorm of every query head and every key head, with scales of its own for each head (Cohere, StableLM).

It belongs to the projections: attention backends norm heads by their root mean square only. H = query heads, K = key
and value heads, D = head dimension, T = tokens.
"""

import torch
import torch.nn.functional as F

from engine.layers.linear import Linear


def with_head_layer_norm(qkv: Linear, query_scales: torch.Tensor, key_scales: torch.Tensor, eps: float) -> Linear:
    """The projections qkv, x -> [T, (H + 2 K) D], with normed queries and keys. Scales [H, D] and [K, D]."""
    scales = torch.cat((query_scales, key_scales)).float()
    num_heads, head_dim = scales.shape

    def project(x: torch.Tensor) -> torch.Tensor:
        heads = qkv(x)
        normed = heads[:, : num_heads * head_dim].unflatten(-1, (num_heads, head_dim))
        normed.copy_(F.layer_norm(normed.float(), (head_dim,), eps=eps).mul_(scales))
        return heads

    return Linear(project)
