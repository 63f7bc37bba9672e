"""Locally typical sampling (Meister et al. 2022), after temperature, top-k, top-p and min-p, as transformers orders
them. Its rows are truncated here, in plain torch, and then drawn as they are. R = rows, V = vocabulary.
"""

from collections.abc import Sequence

import torch

from engine.kernels.reference.sampling import truncate
from engine.sampling_params import SamplingParams

#: Draw from scores as they are: temperature, top-k, top-p, min-p.
_AS_IT_IS = (1.0, 0, 1.0, 0.0)


def is_typical(params: SamplingParams) -> bool:
    """Whether draws of this request are truncated by `truncate_typical` first."""
    return params.typical_p < 1.0 and not params.is_greedy


def draw_settings(params: SamplingParams) -> tuple[float, int, float, float]:
    """Temperature, top-k, top-p and min-p with which a token is drawn from its scores."""
    return _AS_IT_IS if is_typical(params) else (params.temperature, params.top_k, params.top_p, params.min_p)


def typical_columns(
    params: Sequence[SamplingParams],
) -> tuple[list[float], list[int], list[float], list[float], list[float]]:
    """Temperatures, top-k, top-p, min-p and typical-p of rows, as `truncate_typical` takes them."""
    return (
        [each.temperature for each in params],
        [each.top_k for each in params],
        [each.top_p for each in params],
        [each.min_p for each in params],
        [each.typical_p for each in params],
    )


def truncate_typical(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    typical_p: torch.Tensor,
) -> torch.Tensor:
    """Scores [R, V] float32 of logits [R, V] float32 over temperatures, with -inf for tokens that are cut; the other
    arguments are [R]. Tokens with equal scores are kept or cut together. Newly allocated; waits for no device."""
    scores = (logits - logits.amax(dim=-1, keepdim=True)) / temperatures[:, None]
    logprobs = truncate(scores, top_k, top_p, min_p).log_softmax(dim=-1, dtype=torch.float64)
    masses = logprobs.exp()
    entropy = -(masses * logprobs.masked_fill(masses == 0.0, 0.0)).sum(dim=-1, keepdim=True)
    distances = (logprobs + entropy).abs()  # of a token's surprise from the entropy; infinite for a cut one
    ordered, order = distances.sort(dim=-1)
    in_order = masses.gather(1, order)
    num_before = (in_order.cumsum(dim=-1) - in_order < typical_p.to(torch.float64)[:, None]) & ordered.isfinite()
    last = num_before.sum(dim=-1, keepdim=True).sub_(1).clamp_(min=0)
    return scores.masked_fill(distances > ordered.gather(1, last), float("-inf")).masked_fill_(
        distances.isinf(), float("-inf")
    )
