"""Inputs of a decode step (one token per row), computed on the device from slots and positions: tokens, places in
pages, sampling parameters.

One launch per layer type, each with its own page table; the first launch also writes what all types share. One program
has many rows.
B = rows, S = slots.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.step_kernels import SAMPLING_WORDS, SamplingColumns

_BLOCK_ROWS = 128


@triton.jit(do_not_specialize=["num_rows"])
def _prepare_decode(
    slots_ptr,
    starts_ptr,
    last_tokens_ptr,
    page_table_ptr,
    parameters_ptr,
    token_ids_ptr,
    positions_ptr,
    context_lengths_ptr,
    page_places_ptr,
    temperatures_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    seeds_ptr,
    counters_ptr,
    table_stride,
    num_rows,
    PAGE_TOKENS: tl.constexpr,
    WORDS: tl.constexpr,
    IS_FIRST: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (blocks of rows). Writes page_places [B] of one layer type; IS_FIRST: also token_ids, positions,
    context_lengths and the columns of sampling, [B]."""
    wait_for_previous(WAITS)
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_row = rows < num_rows
    slots = tl.load(slots_ptr + rows, mask=is_row, other=-1).to(tl.int64)
    is_real = slots >= 0
    starts = tl.load(starts_ptr + rows, mask=is_real, other=0)
    if page_table_ptr is not None:
        pages = page_table_ptr + slots * table_stride + starts // PAGE_TOKENS
        page_ids = tl.load(pages, mask=is_real, other=0).to(tl.int64)
        places = tl.where(is_real, page_ids * PAGE_TOKENS + starts % PAGE_TOKENS, -1)
        tl.store(page_places_ptr + rows, places, mask=is_row)
    if IS_FIRST:
        tokens = tl.load(last_tokens_ptr + slots, mask=is_real, other=0)
        tl.store(token_ids_ptr + rows, tokens, mask=is_row)
        tl.store(positions_ptr + rows, starts.to(tl.int64), mask=is_row)
        tl.store(context_lengths_ptr + rows, tl.where(is_real, starts + 1, 0), mask=is_row)
        words_ptr = parameters_ptr + slots * WORDS
        temperatures = tl.load(words_ptr, mask=is_real, other=0).to(tl.float32, bitcast=True)
        tl.store(temperatures_ptr + rows, temperatures, mask=is_row)
        tl.store(top_k_ptr + rows, tl.load(words_ptr + 1, mask=is_real, other=0), mask=is_row)
        top_p = tl.load(words_ptr + 2, mask=is_real, other=0).to(tl.float32, bitcast=True)
        tl.store(top_p_ptr + rows, tl.where(is_real, top_p, 1.0), mask=is_row)
        min_p = tl.load(words_ptr + 3, mask=is_real, other=0).to(tl.float32, bitcast=True)
        tl.store(min_p_ptr + rows, min_p, mask=is_row)
        low = tl.load(words_ptr + 4, mask=is_real, other=0).to(tl.uint32, bitcast=True)
        high = tl.load(words_ptr + 5, mask=is_real, other=0)
        tl.store(seeds_ptr + rows, (high.to(tl.int64) << 32) | low.to(tl.int64), mask=is_row)
        counters = starts + 1 + tl.load(words_ptr + 6, mask=is_real, other=0)
        tl.store(counters_ptr + rows, tl.where(is_real, counters, 0).to(tl.int64), mask=is_row)


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
    StepKernels.prepare_decode defines. All tensors except page tables are contiguous."""
    num_rows = slots.shape[0]
    assert slots.dtype == starts.dtype == context_lengths.dtype == parameters.dtype == torch.int32
    assert last_tokens.dtype == token_ids.dtype == positions.dtype == torch.int64
    assert parameters.shape[1] == SAMPLING_WORDS
    assert parameters.is_contiguous()
    for rows in (slots, starts, token_ids, positions, context_lengths, *page_places, *sampling.all):
        assert rows.shape == (num_rows,)
        assert rows.is_contiguous()
    types: list[tuple[torch.Tensor | None, int, torch.Tensor | None]] = [(None, 1, None)]  # a model without attention
    if page_tables:
        types = list(zip(page_tables, page_tokens, page_places, strict=True))
    for index, (table, num_tokens, places) in enumerate(types):
        if table is not None and places is not None:
            assert table.dtype == torch.int32
            assert table.stride(1) == 1
            assert places.dtype == torch.int64
        _prepare_decode[(triton.cdiv(num_rows, _BLOCK_ROWS),)](
            slots,
            starts,
            last_tokens,
            table,
            parameters,
            token_ids,
            positions,
            context_lengths,
            places,
            *sampling.all,
            0 if table is None else table.stride(0),
            num_rows,
            PAGE_TOKENS=num_tokens,
            WORDS=SAMPLING_WORDS,
            IS_FIRST=index == 0,
            BLOCK_ROWS=_BLOCK_ROWS,
            num_warps=4,
            **launch_options(slots.device),
        )
