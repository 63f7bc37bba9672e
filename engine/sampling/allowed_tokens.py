"""Requests that allow few tokens: all others are forbidden before sampling. R = rows, V = vocabulary."""

from collections.abc import Sequence

import numpy as np
import torch

from engine.sampling_params import SamplingParams


def allowed_tokens(params: Sequence[SamplingParams], vocab_size: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Indices [R] int64 of the params that allow few tokens, and these tokens [R, N] int64, where the first of a row
    fills its end. None: none does."""
    rows = [index for index, each in enumerate(params) if each.allowed_token_ids is not None]
    if not rows:
        return None
    allowed = [params[index].allowed_token_ids or () for index in rows]
    tokens = np.empty((len(rows), max(map(len, allowed))), np.int64)
    for place, ids in enumerate(allowed):
        tokens[place] = ids[0]
        tokens[place, : len(ids)] = ids
    assert tokens.max() < vocab_size
    return np.array(rows, np.int64), tokens


def forbid_others(scores: torch.Tensor, rows: torch.Tensor, tokens: torch.Tensor) -> None:
    """Set the scores [*, V] of these rows [R] to -inf, except those of tokens [R, N]. In place; waits for no device."""
    chosen = scores.index_select(0, rows)
    kept = torch.full_like(chosen, float("-inf")).scatter_(1, tokens, chosen.gather(1, tokens))
    scores.index_copy_(0, rows, kept)
