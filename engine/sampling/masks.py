"""Masks of tokens on logits, on the host: -inf for tokens that a row may not sample."""

import numpy as np
import torch

from engine.batch import TokenMasks


def forbid_tokens(logits: torch.Tensor, masks: TokenMasks) -> None:
    """Set logits [R, V] of forbidden tokens to -inf, in place; masks.draws are rows."""
    bits = np.unpackbits((~masks.words).view(np.uint8), axis=1, count=logits.shape[1], bitorder="little")
    is_forbidden = torch.from_numpy(bits).view(torch.bool).to(logits.device)
    rows = torch.from_numpy(masks.draws).to(logits.device)
    if len(rows) == len(logits):
        logits.masked_fill_(is_forbidden, float("-inf"))
    else:
        logits.index_copy_(0, rows, logits.index_select(0, rows).masked_fill_(is_forbidden, float("-inf")))
