"""Truncation of distributions: top-k, top-p (Holtzman et al. 2020), min-p (Nguyen et al. 2024), one setting per row.

Each keeps everything at or above a threshold, so that equal logits share their fate and no sort order matters.
R = rows, V = vocabulary.
"""

import torch

_NEVER = float("-inf")


def truncate(scores: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Scores [R, V] with -inf where a token is cut off. top_k [R] (0: off), top_p [R] (1: off), min_p [R] (0: off).

    In this order, as transformers does: top-p sees the distribution that top-k has left. Sorts only rows that need it.
    """
    vocab_size = scores.shape[1]
    largest_k = min(int(top_k.max()), vocab_size)
    leaders: torch.Tensor | None = None
    if largest_k > 0:
        leaders = scores.topk(largest_k).values
        threshold = leaders.gather(1, (top_k.clamp(1, vocab_size) - 1)[:, None])
        is_off = (top_k == 0)[:, None]
        scores = scores.masked_fill(scores < threshold.masked_fill(is_off, _NEVER), _NEVER)
        ranks = torch.arange(largest_k, device=scores.device)
        leaders = leaders.masked_fill(ranks >= top_k[:, None], _NEVER)
    if bool((top_p < 1.0).any()):
        needs_sort = (top_p < 1.0) & (top_k == 0)
        if leaders is None or bool(needs_sort.any()):
            leaders = scores.sort(dim=-1, descending=True).values
        probabilities = leaders.softmax(dim=-1)
        mass_before = probabilities.cumsum(dim=-1) - probabilities
        num_kept = (mass_before < top_p[:, None]).sum(dim=-1).clamp(min=1)
        threshold = leaders.gather(1, (num_kept - 1)[:, None])
        scores = scores.masked_fill((scores < threshold) & (top_p < 1.0)[:, None], _NEVER)
    if bool((min_p > 0.0).any()):
        threshold = scores.amax(dim=-1, keepdim=True) + min_p.log()[:, None]
        scores = scores.masked_fill(scores < threshold, _NEVER)
    return scores
