"""Decode attention of rows that share a prefix and its pages (cascade attention): the prefix is read once for all
queries of a group, which fill a tile, instead of once per row.

The prefix of each group is a launch. Another one reads the suffix of each row (the tokens behind the prefix), whose
states lie behind those of its prefix, and merges both; where its tiles have too many channels for that, merge_states is
a third one. With n rows in a group the prefix costs n times fewer reads of keys and values; this pays from a few
hundred shared tokens on. Results differ from attend_decode's in the last bits, and in the last bits between groupings.

B = rows, g = groups; the others as in engine/kernels/step_kernels.py.
"""

import torch

from engine.kernels.gpu.merge_states import merge_states
from engine.kernels.gpu.paged_attention import (
    Parts,
    can_merge,
    check_rows,
    check_starts,
    check_step,
    launch,
    step_tiles,
)
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
    """Writes output [B, H, C], as StepKernels.attend_shared_prefix defines. The prefix and the suffix may each use half
    of the workspace's splits. Raises ValueError if tensors do not fit, or if the layer has a window."""
    check_step(query, pages, page_table, slots, context_lengths, output, options, scales)
    check_rows(query, slots, output, workspace)
    check_starts(group_starts, len(group_starts) - 1)
    max_parts = workspace.outputs.shape[2] // 2
    if options.most_tokens is not None:
        raise ValueError("a layer with a window has no shared prefix: attend_decode reads what its window leaves")
    if prefix_lengths.shape != slots.shape or prefix_lengths.dtype != torch.int32 or not prefix_lengths.is_contiguous():
        raise ValueError(f"prefix lengths must be {len(slots)} adjacent int32, not {list(prefix_lengths.shape)}")
    if not max_parts:
        raise ValueError("states of prefix and suffix need a workspace of two splits or more")
    if not len(slots):
        return
    step = (query, pages, page_table, slots, context_lengths, output, options, scales)
    counts, earlier = workspace.counts
    parts = Parts(workspace, max_parts, counts=earlier)
    prefix_tiles = step_tiles("prefix", query, pages, output, len(slots), options)
    launch("prefix", prefix_tiles, *step, starts=group_starts, prefixes=prefix_lengths, parts=parts)
    are_merged = can_merge(query, pages, output)
    parts = Parts(workspace, max_parts, counts=counts, earlier=earlier, are_merged=are_merged)
    suffix_tiles = step_tiles("suffix", query, pages, output, 1, options)
    launch("suffix", suffix_tiles, *step, prefixes=prefix_lengths, parts=parts)
    if not are_merged:
        merge_states(workspace.outputs, workspace.lse, counts, output)
