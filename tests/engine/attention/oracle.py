"""Paged attention one sequence after another, as one would write it on paper: what every implementation is held to.

T = tokens, B = sequences, H = query heads, K = key/value heads, D = head dimension.
"""

import torch

from engine.kernels.step_kernels import AttentionOptions, PageScales


def store_key_value(
    key_value: torch.Tensor, pages: torch.Tensor, page_ids: torch.Tensor, offsets: torch.Tensor
) -> None:
    """Write keys and values of tokens into their places of a layer's pages.

    key_value [T, 2, K, D]; pages [num_pages, 2, K, page_tokens, D], strided; page_ids, offsets [T] int64, all places
    distinct.
    """
    pages[page_ids, :, :, offsets] = key_value


def paged_attention(
    query: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    context_lengths: torch.Tensor,
    query_starts: torch.Tensor,
    options: AttentionOptions,
    scales: PageScales | None = None,
    value_dim: int | None = None,
) -> torch.Tensor:
    """Attention of the last tokens of each sequence to its context, in float32. Only entries of page_table are looked
    at that some query reads.

    query [T, H, D]; pages as above, already holding the step's own keys and values; page_table [B, P]; context_lengths
    [B] with the step's tokens; query_starts [B + 1], rows of sequence b are [query_starts[b], query_starts[b + 1]).
    value_dim: values are the last that many channels of what is stored last. Returns [T, H, value_dim or D] in the
    dtype of query.
    """
    num_heads, head_dim = query.shape[1:]
    value_dim = value_dim or head_dim
    num_kv_heads, page_tokens = pages.shape[2], pages.shape[3]
    output = query.new_empty((*query.shape[:2], value_dim))
    for b, context_length in enumerate(context_lengths.tolist()):
        first, last = int(query_starts[b]), int(query_starts[b + 1])
        start = context_length - (last - first)
        behind = 0 if options.window is None else max(0, start - options.window + 1)
        if options.chunk is not None:
            behind = start // options.chunk * options.chunk
        positions = torch.arange(behind, context_length, device=query.device)
        page_ids, offsets = page_table[b, positions // page_tokens].long(), positions % page_tokens
        parts = pages[page_ids, :, :, offsets].float()  # [L, 2 or 1, K, D]
        key, value = parts[:, 0], parts[:, -1, :, head_dim - value_dim :]  # [L, K, D]
        if scales is not None:
            key = key * scales.key[page_ids, :, offsets][:, :, None]
            value = value * scales.value[page_ids, :, offsets][:, :, None]
        key, value = (heads.repeat_interleave(num_heads // num_kv_heads, dim=1) for heads in (key, value))
        scores = torch.einsum("qhd,lhd->hql", query[first:last].float(), key) * options.scale
        if options.softcap is not None:
            scores = options.softcap * torch.tanh(scores / options.softcap)
        query_positions = torch.arange(context_length - (last - first), context_length, device=query.device)[:, None]
        if options.alibi_slopes is not None:
            scores = scores + options.alibi_slopes[:, None, None] * (positions - query_positions)
        is_hidden = positions > query_positions if options.is_causal else torch.zeros_like(scores[0], dtype=torch.bool)
        if options.window is not None:
            is_hidden = is_hidden | (positions <= query_positions - options.window)
        if options.chunk is not None:
            is_hidden = is_hidden | (positions // options.chunk != query_positions // options.chunk)
        scores = scores.masked_fill(is_hidden, float("-inf"))
        if options.sinks is not None:
            sinks = options.sinks[:, None, None].expand(-1, last - first, 1)
            scores = torch.cat((scores, sinks), dim=2)
            value = torch.cat((value, torch.zeros_like(value[:1])))
        output[first:last] = torch.einsum("hql,lhd->qhd", scores.softmax(-1), value).to(query.dtype)
    return output
