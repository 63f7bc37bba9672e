"""Inputs of a decode step (one token per row), computed from slots and positions. B = rows, S = slots."""

from collections.abc import Sequence

import torch

from engine.kernels.step_kernels import SamplingColumns


def prepare_decode(
    slots: torch.Tensor,
    starts: torch.Tensor,
    last_tokens: torch.Tensor,
    page_tables: Sequence[torch.Tensor],
    page_tokens: Sequence[int],
    parameters: torch.Tensor,
    token_ids: torch.Tensor,
    positions: torch.Tensor,
    context_lengths: torch.Tensor,
    page_places: Sequence[torch.Tensor],
    sampling: SamplingColumns,
) -> None:
    """Fills token_ids, positions, context_lengths, page_places and the columns of sampling, [B] each, as
    StepKernels.prepare_decode defines."""
    is_real = slots >= 0
    rows = slots.clamp(min=0).long()
    token_ids.copy_(torch.where(is_real, last_tokens[rows], 0))
    positions.copy_(torch.where(is_real, starts, 0))
    context_lengths.copy_(torch.where(is_real, starts + 1, 0))
    for table, num_tokens, places in zip(page_tables, page_tokens, page_places, strict=True):
        page_ids = table[rows, positions // num_tokens].long()
        places.copy_(torch.where(is_real, page_ids * num_tokens + positions % num_tokens, -1))
    words = parameters[rows]
    floats = words.view(torch.float32)
    sampling.temperatures.copy_(torch.where(is_real, floats[:, 0], 0.0))
    sampling.top_k.copy_(torch.where(is_real, words[:, 1], 0))
    sampling.top_p.copy_(torch.where(is_real, floats[:, 2], 1.0))
    sampling.min_p.copy_(torch.where(is_real, floats[:, 3], 0.0))
    sampling.seeds.copy_(torch.where(is_real, words.view(torch.int64)[:, 2], 0))
    sampling.counters.copy_(torch.where(is_real, starts + 1 + words[:, 6], 0))
