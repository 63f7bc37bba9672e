"""Paged attention in plain torch, scores and sums in float32.

Vectorised over rows, with fixed shapes and without reading a value on the host, so it never waits for the device: the
CUDA runner can use it in place of the Triton kernels. All entries of a page table are gathered for any context length,
so it suits tests and small models only. Arguments are not checked; the callers do that.

Pages of one part hold keys alone: values are their last C channels, as many as the output has.

B = rows, Q = queries of a row, E = entries of the page table, L = E * P tokens; other letters as in
engine/kernels/step_kernels.py.
"""

import torch

from engine.kernels.step_kernels import AttentionOptions, PageScales, SplitWorkspace


def attend_decode(
    query: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    context_lengths: torch.Tensor,
    output: torch.Tensor,
    options: AttentionOptions,
    workspace: SplitWorkspace,
    scales: PageScales | None = None,
) -> None:
    """Writes output [B, H, C] for one query per row, as StepKernels.attend_decode defines; padding rows become zeros.
    The workspace is not used."""
    row_pages, lengths = _rows(page_table, slots, context_lengths)
    num_queries = (lengths > 0).to(lengths.dtype)
    result = _attend(query[:, None], pages, row_pages, lengths, num_queries, options, scales, output.shape[2])
    output.copy_(result[:, 0])


def attend_mixed(
    query: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    context_lengths: torch.Tensor,
    query_starts: torch.Tensor,
    output: torch.Tensor,
    options: AttentionOptions,
    workspace: SplitWorkspace,
    max_queries: int,
    max_context: int,
    scales: PageScales | None = None,
) -> None:
    """Writes output [T, H, C] for any number of queries per row, as StepKernels.attend_mixed defines. Tokens that
    belong to no row, and tokens of padding rows, become zeros. The workspace is not used."""
    num_entries = min(page_table.shape[1], -(-max_context // pages.shape[3]))
    row_pages, lengths = _rows(page_table[:, :num_entries], slots, context_lengths)
    num_tokens, num_rows = len(query), len(slots)
    if num_tokens == 0 or num_rows == 0:
        return
    starts = query_starts.long()
    offsets = torch.arange(max_queries, device=query.device)
    rows = (starts[:-1, None] + offsets).clamp(max=num_tokens - 1)  # [B, Q]
    result = _attend(query[rows], pages, row_pages, lengths, starts.diff(), options, scales, output.shape[2])
    tokens = torch.arange(num_tokens, device=query.device)
    row = torch.searchsorted(starts[1:].contiguous(), tokens, right=True).clamp(max=num_rows - 1)
    place = tokens - starts[row]
    is_taken = (place >= 0) & (place < starts.diff()[row])
    place = place.clamp(0, max_queries - 1)
    output.copy_(result[row, place].masked_fill(~is_taken[:, None, None], 0))


def _rows(
    page_table: torch.Tensor, slots: torch.Tensor, context_lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Page table [B, E] and context length [B] int64 of every row of the step; 0 for padding rows."""
    return page_table[slots.clamp(min=0).long()], context_lengths.masked_fill(slots < 0, 0).long()


def _attend(
    query: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    context_lengths: torch.Tensor,
    num_queries: torch.Tensor,
    options: AttentionOptions,
    scales: PageScales | None,
    value_dim: int,
) -> torch.Tensor:
    """query [B, Q, H, D]: the first num_queries [B] of each row are the last tokens of its context; page_table [B, E].
    Returns [B, Q, H, C] float32."""
    num_rows, max_queries, num_heads, head_dim = query.shape
    num_parts, num_kv_heads, page_tokens = pages.shape[1:4]
    num_entries = page_table.shape[1]
    key_positions = torch.arange(num_entries * page_tokens, device=query.device)
    places = torch.arange(max_queries, device=query.device)
    positions = (context_lengths - num_queries)[:, None] + places  # [B, Q]
    is_visible = (key_positions < context_lengths[:, None])[:, None] & (places < num_queries[:, None])[:, :, None]
    if options.is_causal:
        is_visible = is_visible & (key_positions <= positions[:, :, None])
    if options.window is not None:
        is_visible = is_visible & (key_positions > positions[:, :, None] - options.window)
    if options.chunk is not None:
        is_visible = is_visible & (key_positions >= (positions // options.chunk * options.chunk)[:, :, None])
    is_read = is_visible.any(1)  # [B, L]: no other token and no other table entry is used

    is_page_read = is_read.view(num_rows, num_entries, page_tokens).any(2)
    page_ids = page_table.masked_fill(~is_page_read, 0).long()
    key_value = pages[page_ids].float()  # [B, E, 2 or 1, K, P, D]
    if scales is not None:
        both = (scales.key, scales.value)[:num_parts]
        key_value = key_value * torch.stack([factors[page_ids] for factors in both], dim=2)[..., None]
    key_value = key_value.permute(2, 0, 3, 1, 4, 5).reshape(num_parts, num_rows, num_kv_heads, -1, head_dim)
    key_value = key_value.masked_fill(~is_read[:, None, :, None], 0)
    key, value = key_value[0], key_value[-1, ..., head_dim - value_dim :]  # [B, K, L, D], [B, K, L, C]

    grouped = query.float().view(num_rows, max_queries, num_kv_heads, -1, head_dim)
    scores = torch.einsum("bqkgd,bkld->bqkgl", grouped, key).flatten(2, 3) * options.scale  # [B, Q, H, L]
    if options.softcap is not None:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    if options.alibi_slopes is not None:
        distances = key_positions - positions[:, :, None]
        scores = scores + options.alibi_slopes[:, None] * distances[:, :, None]
    scores = scores.masked_fill(~is_visible[:, :, None], float("-inf"))
    if options.sinks is None:
        lse = scores.logsumexp(-1)
    else:
        sinks = options.sinks.float()[:, None].expand(num_rows, max_queries, -1, 1)
        lse = torch.cat((scores, sinks), dim=3).logsumexp(-1)
    # The lse of a row without visible tokens is -inf; its scores must not become NaN.
    probabilities = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0)[..., None])
    probabilities = probabilities.view(num_rows, max_queries, num_kv_heads, num_heads // num_kv_heads, -1)
    return torch.einsum("bqkgl,bkld->bqkgd", probabilities, value).flatten(2, 3)
