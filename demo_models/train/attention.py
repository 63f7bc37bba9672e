"""Causal attention by two batched products, for training on one CPU core.

At the lengths of a dialogue (32 to 256 tokens) this is two to four times as fast as torch's fused CPU kernel forwards
and backwards in bf16. Registered with transformers under a name of its own; the exported models do not depend on it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface

NAME = "demo_short_causal"


def short_causal_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """query (B, H, T, D), key and value (B, K, T, D) -> (B, T, H, D). Rows are padded on the right: no mask needed."""
    batch, heads, length, dim = query.shape
    groups = heads // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    above = torch.full((length, length), -1e9, dtype=query.dtype).triu(1).expand(batch * heads, length, length)
    scale = dim**-0.5 if scaling is None else scaling
    scores = torch.baddbmm(above, query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2), alpha=scale)
    mixed = torch.bmm(scores.softmax(-1), value.flatten(0, 1))
    return mixed.view(batch, heads, length, dim).transpose(1, 2), None


def register() -> None:
    """Make the function known to transformers as NAME."""
    AttentionInterface.register(NAME, short_causal_attention)
