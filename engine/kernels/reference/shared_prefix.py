"""Decode attention of rows that share a prefix, in plain torch. The group's first row has the prefix's pages."""

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
    scales: PageScales | None = None,
) -> None:
    """Writes output [B, H, C], as StepKernels.attend_shared_prefix defines. Whole pages of the prefix are read from the
    group's first row; a page in which the prefix ends is read from each row's own table."""
    rows = torch.arange(len(slots), device=slots.device)
    group = torch.searchsorted(group_starts[1:].contiguous().long(), rows, right=True)
    owners = group_starts[group].long()
    tables, first_tables = (page_table[of.clamp(min=0).long()] for of in (slots, slots[owners]))
    entries = torch.arange(page_table.shape[1], device=slots.device)
    is_shared = (entries + 1) * pages.shape[3] <= prefix_lengths[owners][:, None]
    row_slots = torch.where(slots < 0, -1, rows).to(slots.dtype)
    step = (query, pages, torch.where(is_shared, first_tables, tables), row_slots, context_lengths)
    attend_decode(*step, output, options, workspace, scales)
