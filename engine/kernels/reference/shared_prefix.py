"""Decodes of rows that share a prefix, in plain torch: that they share it changes nothing of what they mean."""

import torch

from engine.kernels.reference.paged_attention import attend_decode
from engine.kernels.step_kernels import AttentionOptions, PageScales, SplitWorkspace


def attend_shared_prefix(
    query: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    context_lengths: torch.Tensor,
    group_starts: torch.Tensor,
    prefix_lengths: torch.Tensor,
    output: torch.Tensor,
    options: AttentionOptions,
    workspace: SplitWorkspace,
    max_prefix: int,
    max_suffix: int,
    scales: PageScales | None = None,
) -> None:
    """Arguments as those of engine/kernels/gpu/shared_prefix.py; groups and prefixes are not looked at."""
    max_context = max_prefix + max_suffix
    step = (query, pages, page_table, slots, context_lengths)
    attend_decode(*step, output, options, workspace, max_context, scales)
