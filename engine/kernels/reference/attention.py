"""Paged attention in plain torch: what it means, without regard to speed.

T = tokens, B = sequences, H = query heads, K = key/value heads, D = head dimension. Checks nothing: the callers do.
"""

import torch


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
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Causal attention of the last tokens of each sequence to its context, scores and sums in float32.

    window: tokens that a query reads, its own included; None: its whole context. softcap: scores become
    softcap * tanh(score / softcap). Entries of page_table that lie before all windows may be the null page.

    query [T, H, D]; pages as above, already holding the step's own keys and values; page_table [B, P]; context_lengths
    [B] with the step's tokens; query_starts [B + 1], rows of sequence b are [query_starts[b], query_starts[b + 1]).
    Returns [T, H, D] in the dtype of query.
    """
    num_kv_heads, page_tokens = pages.shape[2], pages.shape[3]
    group_size = query.shape[1] // num_kv_heads
    output = torch.empty_like(query)
    for b, context_length in enumerate(context_lengths.tolist()):
        first, last = int(query_starts[b]), int(query_starts[b + 1])
        positions = torch.arange(context_length, device=query.device)
        page_ids = page_table[b, positions // page_tokens].long()
        key_value = pages[page_ids, :, :, positions % page_tokens].float()  # [L, 2, K, D]
        key, value = key_value.repeat_interleave(group_size, dim=2).unbind(1)  # [L, H, D]
        scores = torch.einsum("qhd,lhd->hql", query[first:last].float(), key) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        query_positions = torch.arange(context_length - (last - first), context_length, device=query.device)[:, None]
        is_hidden = positions > query_positions
        if window is not None:
            is_hidden |= positions <= query_positions - window
        scores = scores.masked_fill(is_hidden, float("-inf"))
        output[first:last] = torch.einsum("hql,lhd->qhd", scores.softmax(-1), value).to(query.dtype)
    return output
