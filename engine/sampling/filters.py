"""Truncation of distributions: top-k, top-p (Holtzman et al. 2020), min-p (Nguyen et al. 2024), one setting per row.

Each keeps every token at or above a threshold, so that equal logits are kept or cut together, in any sort order.
R = rows, V = vocabulary.
"""

import torch

#: In most rows of a chat model, fewer tokens than this have 0.9 of the mass.
NUM_LEADERS = 64
NUM_BINS = 1024

_NEVER = float("-inf")


def truncate(scores: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Scores [R, V] with -inf for tokens that are cut; scores are relative to the largest of their row. top_k [R] (0:
    off), top_p [R] (1: off), min_p [R] (0: off).

    In this order, as transformers does: top-p sees the distribution that top-k has left, with all ties at its
    threshold.
    """
    distances = -scores  # the smaller, the likelier
    limits = torch.full((len(scores), 1), torch.inf, device=scores.device)
    largest_k = min(int(top_k.max()), scores.shape[1])
    if largest_k > 0:
        leaders = distances.topk(largest_k, largest=False).values
        limits = leaders.gather(1, top_k.clamp(1, largest_k)[:, None] - 1).masked_fill((top_k == 0)[:, None], torch.inf)
    rows = (top_p < 1.0).nonzero().squeeze(1)
    if len(rows):
        limits[rows] = _limits_of_mass(distances[rows], limits[rows], top_p[rows].to(torch.float64)[:, None])
    if bool((min_p > 0.0).any()):
        limits = torch.minimum(limits, -min_p.log()[:, None])
    return torch.where(distances > limits, _NEVER, scores)


def _limits_of_mass(distances: torch.Tensor, limits: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """For each row the largest distance that is kept: less than top_p of the mass within the limit lies below it.

    For most rows it is found among a few leaders in order. For other rows, distances are counted into bins, and only
    those of the bin where the mass is reached are sorted. Which way a row takes depends on that row only.
    """
    distances = torch.where(distances > limits, torch.inf, distances)
    needed = top_p * _masses(distances).sum(dim=-1, keepdim=True)
    leaders = distances.topk(min(NUM_LEADERS, distances.shape[1]), largest=False).values
    places = _last_kept(leaders, needed)
    found = leaders.gather(1, places)
    rest = (places.squeeze(1) == NUM_LEADERS - 1).nonzero().squeeze(1)
    if len(rest):
        found[rest] = _limits_by_bins(distances[rest], needed[rest], top_p[rest])
    return found


def _limits_by_bins(distances: torch.Tensor, needed: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    # Beyond this distance even all tokens of the vocabulary together have less than the mass that is cut.
    reach = (distances.shape[1] * top_p / ((1.0 - top_p) * needed)).log() + 1.0
    bins = (distances * (NUM_BINS / reach).to(torch.float32)).clamp_(max=NUM_BINS).to(torch.int64)
    counted = torch.zeros((len(bins), NUM_BINS + 1), dtype=torch.float64, device=bins.device)
    counted.scatter_add_(1, bins, _masses(distances))
    before = counted.cumsum(dim=-1) - counted
    chosen = ((before < needed).sum(dim=-1, keepdim=True) - 1).clamp_(min=0)
    row, column = (bins == chosen).nonzero(as_tuple=True)
    sizes = torch.bincount(row, minlength=len(bins))
    candidates = torch.full((len(bins), int(sizes.max())), torch.inf, device=bins.device)
    candidates[row, torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]] = distances[row, column]
    candidates = candidates.sort(dim=-1).values
    return candidates.gather(1, _last_kept(candidates, needed - before.gather(1, chosen)))


def _last_kept(distances: torch.Tensor, needed: torch.Tensor) -> torch.Tensor:
    """Index of the last of the ordered distances that has less than the needed mass before it."""
    masses = _masses(distances)
    before = masses.cumsum(dim=-1) - masses
    return ((before < needed) & distances.isfinite()).sum(dim=-1, keepdim=True).sub_(1).clamp_(min=0)


def _masses(distances: torch.Tensor) -> torch.Tensor:
    return distances.neg().exp_().to(torch.float64)
