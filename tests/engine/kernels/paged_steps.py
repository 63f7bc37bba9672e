"""Attention inputs whose pages are poisoned (NaN or 127) wherever no query reads, for tests of attention kernels."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.kernels.step_kernels import AttentionOptions, PageScales

CPU = torch.device("cpu")
GARBAGE = (-1, 2**30, -(2**31))  #: values of page table entries that are never read


@dataclass(frozen=True)
class PagedStep:
    """Inputs of attend_mixed or attend_decode; letters as in engine/kernels/step_kernels.py."""

    query: torch.Tensor  #: [T, H, D], strided rows
    pages: (
        torch.Tensor
    )  #: [N, 2, K, P, D], of latents [N, 1, K, P, D]: one layer of several, pages with padding between them
    page_table: torch.Tensor  #: [S, entries]
    slots: torch.Tensor  #: [B]
    context_lengths: torch.Tensor  #: [B]
    query_starts: torch.Tensor  #: [B + 1]
    scales: PageScales | None
    max_queries: int
    value_dim: int  #: channels of the output

    def new_output(self) -> torch.Tensor:
        """Not a number until it is written."""
        shape = (*self.query.shape[:2], self.value_dim)
        return torch.full(shape, float("nan"), dtype=self.query.dtype, device=self.query.device)

    @property
    def row_tables(self) -> torch.Tensor:
        """Page table of every row of the step, [B, entries]."""
        return self.page_table[self.slots.long()]


def paged_step(
    contexts: Sequence[int],
    queries: Sequence[int],
    *,
    window: int | None = None,
    num_kv_heads: int = 2,
    group_size: int = 2,
    head_dim: int = 16,
    value_dim: int | None = None,
    page_tokens: int = 4,
    dtype: torch.dtype = torch.float32,
    page_dtype: torch.dtype | None = None,
    magnitude: float = 1.0,
    seed: int = 0,
    device: torch.device = CPU,
) -> PagedStep:
    """A step with random queries, keys and values. contexts: tokens of each sequence, including those of the step;
    queries: tokens of each sequence in the step. value_dim: pages hold keys alone, values are their last that many
    channels."""
    generator = torch.Generator().manual_seed(seed)
    page_dtype = page_dtype or dtype
    num_pages = [-(-context // page_tokens) for context in contexts]
    total_pages = sum(num_pages) + 3
    num_layers, padding = 2, 48
    num_parts = 2 if value_dim is None else 1
    layer_elements = num_parts * num_kv_heads * page_tokens * head_dim
    page_elements = num_layers * layer_elements + padding
    poison = 127 if page_dtype == torch.int8 else float("nan")
    pool = torch.full((total_pages * page_elements,), poison, dtype=torch.float32).to(page_dtype)
    strides = (page_elements, layer_elements // num_parts, page_tokens * head_dim, head_dim, 1)
    pages = pool.as_strided((total_pages, num_parts, num_kv_heads, page_tokens, head_dim), strides, layer_elements)
    order = (torch.randperm(total_pages - 1, generator=generator) + 1).tolist()  # page 0 is the null page

    scales = None
    if page_dtype != dtype:
        shape = (total_pages, num_kv_heads, page_tokens)
        unit = 1 / 50 if page_dtype == torch.int8 else 1.0
        parts = [torch.rand(shape, generator=generator) * unit + unit / 2 for _ in range(num_parts)]
        scales = PageScales(parts[0], parts[-1])

    num_slots = len(contexts) + 2
    table = torch.tensor(GARBAGE)[torch.randint(len(GARBAGE), (num_slots, max(num_pages) + 2), generator=generator)]
    table = table.to(torch.int32)
    slots = torch.randperm(num_slots, generator=generator)[: len(contexts)].to(torch.int32)
    is_used = torch.zeros(total_pages, page_tokens, dtype=torch.bool)
    for slot, context, num_queries in zip(slots.tolist(), contexts, queries, strict=True):
        first = 0 if window is None else max(0, context - num_queries - window + 1)
        own = [order.pop() for _ in range(first // page_tokens, -(-context // page_tokens))]
        table[slot, first // page_tokens : -(-context // page_tokens)] = torch.tensor(own, dtype=torch.int32)
        positions = torch.arange(first, context)
        page_ids, offsets = table[slot, positions // page_tokens].long(), positions % page_tokens
        tokens = torch.randn(len(positions), num_parts, num_kv_heads, head_dim, generator=generator) * magnitude
        if page_dtype == torch.int8:
            tokens = (tokens * 40).round().clamp(-127, 127)
        pages[page_ids, :, :, offsets] = tokens.to(page_dtype)
        is_used[page_ids, offsets] = True
    if scales is not None:
        for factors in (scales.key, scales.value):
            factors.masked_fill_(~is_used[:, None], float("nan"))

    num_heads = num_kv_heads * group_size
    rows = torch.randn(sum(queries), num_heads + 2 * num_kv_heads, head_dim, generator=generator) * magnitude
    starts = torch.tensor([0, *queries]).cumsum(0).to(torch.int32)
    if scales is not None:
        scales = PageScales(scales.key.to(device), scales.value.to(device))
    return PagedStep(
        rows.to(dtype).to(device)[:, :num_heads],
        pool.to(device).as_strided(pages.shape, strides, layer_elements),
        table.to(device),
        slots.to(device),
        torch.tensor(contexts, dtype=torch.int32, device=device),
        starts.to(device),
        scales,
        max(queries),
        value_dim or head_dim,
    )


def options_of(kind: str, num_heads: int, window: int | None = None, device: torch.device = CPU) -> AttentionOptions:
    """Options by name: plain, softcap, alibi, sinks, whole (not causal), chunks (of the window's tokens)."""
    generator = torch.Generator().manual_seed(num_heads)
    return AttentionOptions(
        scale=0.3,
        window=None if kind == "chunks" else window,
        chunk=window if kind == "chunks" else None,
        softcap=2.0 if kind == "softcap" else None,
        alibi_slopes=torch.rand(num_heads, generator=generator).to(device) if kind == "alibi" else None,
        sinks=torch.randn(num_heads, generator=generator).to(device) if kind == "sinks" else None,
        is_causal=kind != "whole",
    )
