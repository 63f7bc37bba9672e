"""Norm and rotation of query and key heads, and storing keys and values into their pages, quantised if the pages are.

One program has a few heads of one token. Channels are in three parts: the first and the second channels of rotated
pairs, and the channels that are not rotated. A thread holds both channels of its pairs, so queries can be overwritten
in place.

T = tokens, H, K = query and key/value heads, D = head dimension, N = small pages, P = tokens in a page.
"""

from functools import cache

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.launching import launch
from engine.kernels.step_kernels import PageScales

_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
#: Channels of a part per thread: one 128-bit load of 16-bit numbers.
_THREAD_ELEMENTS = 8
#: Where rotated and other channels are parts of their own, which is a program of one warp: no more than 64 per thread.
_MOST_ELEMENTS = 2048


@triton.jit
def _load_part(heads_ptr, channels, is_part):
    """[heads, channels] of qkv as float32; zeros outside the mask."""
    return tl.load(heads_ptr + channels, mask=is_part, other=0.0).to(tl.float32)


@triton.jit
def _norm_weights(query_norm_ptr, key_norm_ptr, channels, is_channel, is_query, is_value):
    """Norm weights [heads, channels]: of queries or of keys; 1 for values."""
    weights = tl.load(query_norm_ptr + channels, mask=is_channel, other=0.0)
    if key_norm_ptr is not None:
        key = tl.load(key_norm_ptr + channels, mask=is_channel, other=0.0)
        weights = tl.where(is_query, weights, tl.where(is_value, 1.0, key))
    return weights


@triton.jit
def _store_part(
    x, heads_ptr, page_ptr, channels, is_query, is_stored, factor, has_pages: tl.constexpr, largest: tl.constexpr
):
    """Stores query heads into qkv, and key and value heads into the page, times `factor` if pages are quantised."""
    tl.store(heads_ptr + channels, x.to(heads_ptr.dtype.element_ty), mask=is_query)
    if has_pages:
        if largest > 0:
            # Clamped first, because conversions treat larger numbers differently.
            x = tl.minimum(tl.maximum(x * factor, -largest), largest)
            if page_ptr.dtype.element_ty == tl.int8:
                x = tl.floor(x + 0.5)
        tl.store(page_ptr + channels, x.to(page_ptr.dtype.element_ty), mask=is_stored)


@triton.jit
def _store_heads(
    qkv_ptr,
    cos_ptr,
    sin_ptr,
    query_norm_ptr,
    key_norm_ptr,
    pages_ptr,
    page_places_ptr,
    key_scale_ptr,
    value_scale_ptr,
    token_stride,
    head_stride,
    angle_stride,
    page_stride,
    page_part_stride,
    page_head_stride,
    page_token_stride,
    scale_page_stride,
    scale_head_stride,
    scale_token_stride,
    norm_eps,
    NORMS_VALUES: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    LARGEST: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (T, blocks of heads). Without pages there are query heads alone; pages of one part hold keys. HALF: rotated
    pairs of channels. LARGEST: largest number of the pages' dtype if it is quantised, else 0."""
    wait_for_previous(WAITS)
    token = tl.program_id(0).to(tl.int64)
    heads = (tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS))[:, None]
    is_head = heads < NUM_HEADS + NUM_PARTS * NUM_KV_HEADS
    is_query = heads < NUM_HEADS
    is_value = heads >= NUM_HEADS + NUM_KV_HEADS
    heads_ptr = qkv_ptr + token * token_stride + heads * head_stride

    HAS_PAGES: tl.constexpr = pages_ptr is not None
    page_ptr = heads_ptr  # not written
    is_stored = is_head
    if HAS_PAGES:
        place = tl.load(page_places_ptr + token)
        page, offset = place // PAGE_TOKENS, place % PAGE_TOKENS
        is_stored = is_head & (heads >= NUM_HEADS) & (place >= 0)
        part = tl.where(is_value, 1, 0)
        kv_heads = heads - NUM_HEADS - part * NUM_KV_HEADS
        token_ptr = pages_ptr + page * page_stride + offset * page_token_stride
        page_ptr = token_ptr + part * page_part_stride + kv_heads * page_head_stride

    squares = tl.zeros((BLOCK_HEADS, 1), tl.float32)
    if BLOCK_HALF > 0:
        pairs = tl.arange(0, BLOCK_HALF)[None, :]
        is_pair = pairs < HALF
        first = _load_part(heads_ptr, pairs, is_head & is_pair)
        second = _load_part(heads_ptr + HALF, pairs, is_head & is_pair)
        squares += tl.sum(first * first + second * second, axis=1, keep_dims=True)
    if BLOCK_REST > 0:
        others = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        is_other = others < HEAD_DIM
        rest = _load_part(heads_ptr, others, is_head & is_other)
        squares += tl.sum(rest * rest, axis=1, keep_dims=True)

    if query_norm_ptr is not None:
        inverse = tl.rsqrt(squares / HEAD_DIM + norm_eps)
        if not NORMS_VALUES:
            inverse = tl.where(is_value, 1.0, inverse)
        if BLOCK_HALF > 0:
            weights = _norm_weights(query_norm_ptr, key_norm_ptr, pairs, is_pair, is_query, is_value)
            first *= inverse * weights
            weights = _norm_weights(query_norm_ptr, key_norm_ptr, HALF + pairs, is_pair, is_query, is_value)
            second *= inverse * weights
        if BLOCK_REST > 0:
            rest *= inverse * _norm_weights(query_norm_ptr, key_norm_ptr, others, is_other, is_query, is_value)

    if BLOCK_HALF > 0:
        cos = tl.load(cos_ptr + token * angle_stride + pairs, mask=is_pair, other=0.0)
        sin = tl.load(sin_ptr + token * angle_stride + pairs, mask=is_pair, other=0.0)
        turned = tl.where(is_value, first, first * cos - second * sin)
        second = tl.where(is_value, second, second * cos + first * sin)
        first = turned

    factor = tl.full((BLOCK_HEADS, 1), 1.0, tl.float32)
    if LARGEST > 0:
        peak = tl.zeros((BLOCK_HEADS, 1), tl.float32)
        if BLOCK_HALF > 0:
            peak = tl.max(tl.maximum(tl.abs(first), tl.abs(second)), axis=1, keep_dims=True)
        if BLOCK_REST > 0:
            peak = tl.maximum(peak, tl.max(tl.abs(rest), axis=1, keep_dims=True))
        factor = tl.where(peak > 0, LARGEST / peak, 0.0)
        scales = page * scale_page_stride + offset * scale_token_stride + kv_heads * scale_head_stride
        tl.store(key_scale_ptr + scales, peak / LARGEST, mask=is_stored & (heads < NUM_HEADS + NUM_KV_HEADS))
        tl.store(value_scale_ptr + scales, peak / LARGEST, mask=is_stored & is_value)

    if BLOCK_HALF > 0:
        is_turned, is_paired = is_query & is_pair, is_stored & is_pair
        _store_part(first, heads_ptr, page_ptr, pairs, is_turned, is_paired, factor, HAS_PAGES, LARGEST)
        _store_part(second, heads_ptr + HALF, page_ptr + HALF, pairs, is_turned, is_paired, factor, HAS_PAGES, LARGEST)
    if BLOCK_REST > 0:
        is_kept, is_paged = is_query & is_other, is_stored & is_other
        _store_part(rest, heads_ptr, page_ptr, others, is_kept, is_paged, factor, HAS_PAGES, LARGEST)


def store_heads(
    qkv: torch.Tensor,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    query_norm: torch.Tensor | None,
    key_norm: torch.Tensor | None,
    norm_eps: float,
    pages: torch.Tensor | None,
    page_places: torch.Tensor,
    scales: PageScales | None = None,
    *,
    norms_values: bool = False,
) -> None:
    """Overwrites the query heads of qkv [T, H + 2 K, D] and writes keys, values and scales into pages, as
    StepKernels.store_heads defines; of pages of one part keys alone, of [T, H + K, D]. Channels of a head and angles
    of a token are adjacent, and so are a token's heads."""
    _check_heads(qkv, cos, sin, query_norm, key_norm, has_keys=pages is not None)
    num_tokens, all_heads, head_dim = qkv.shape
    half = 0 if cos is None else cos.shape[1]
    num_parts, num_kv_heads, page_tokens = 0, 0, 1
    page_strides: tuple[int, ...] = (0, 0, 0, 0)
    if pages is not None:
        _check_pages(qkv, pages, page_places, scales)
        num_parts, num_kv_heads, page_tokens = pages.shape[1:4]
        page_strides = pages.stride()[:4]
    elif query_norm is None and cos is None:
        return
    if not num_tokens:
        return
    blocks, num_warps = _blocks(head_dim, half)
    launch(_store_heads, (num_tokens, -(-all_heads // blocks["BLOCK_HEADS"])))(
        qkv,
        cos,
        sin,
        query_norm,
        key_norm,
        pages,
        page_places,
        None if scales is None else scales.key,
        None if scales is None else scales.value,
        *qkv.stride()[:2],
        0 if cos is None else cos.stride(0),
        *page_strides,
        *((0, 0, 0) if scales is None else scales.key.stride()),
        norm_eps,
        NORMS_VALUES=norms_values,
        NUM_HEADS=all_heads - num_parts * num_kv_heads,
        NUM_KV_HEADS=num_kv_heads,
        NUM_PARTS=num_parts,
        HEAD_DIM=head_dim,
        HALF=half,
        PAGE_TOKENS=page_tokens,
        LARGEST=0.0 if pages is None else _LARGEST.get(pages.dtype, 0.0),
        **blocks,
        num_warps=num_warps,
        **launch_options(qkv.device),
    )


def _check_heads(
    qkv: torch.Tensor,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    query_norm: torch.Tensor | None,
    key_norm: torch.Tensor | None,
    *,
    has_keys: bool,
) -> None:
    num_tokens, _, head_dim = qkv.shape
    assert qkv.stride(2) == 1
    assert (cos is None) == (sin is None), "both, or none"
    if cos is not None and sin is not None:
        assert cos.shape == sin.shape == (num_tokens, cos.shape[1])
        assert cos.stride() == sin.stride()
        assert cos.stride(1) == 1
        assert cos.dtype == sin.dtype == torch.float32
        assert 2 * cos.shape[1] <= head_dim
    assert (key_norm is not None) == (query_norm is not None and has_keys), "both norms, or none; no keys, no norm"
    for norm in (query_norm, key_norm):
        if norm is not None:
            assert norm.shape == (head_dim,)
            assert norm.dtype == torch.float32
            assert norm.stride(0) == 1


def _check_pages(qkv: torch.Tensor, pages: torch.Tensor, page_places: torch.Tensor, scales: PageScales | None) -> None:
    num_pages, num_parts, num_kv_heads, page_tokens, head_dim = pages.shape
    assert num_parts in (1, 2)
    assert (head_dim, pages.stride(4)) == (qkv.shape[2], 1)
    assert page_places.shape == (len(qkv),)
    assert page_places.dtype == torch.int64
    assert page_places.is_contiguous()
    assert (scales is None) == (pages.dtype not in _LARGEST), "scales are for quantised pages"
    if scales is not None:
        assert scales.key.stride() == scales.value.stride()
        assert scales.key.shape == scales.value.shape == (num_pages, num_kv_heads, page_tokens)


@cache
def _blocks(head_dim: int, half: int) -> tuple[dict[str, int], int]:
    """Sizes of a program's parts, and its warps. No part has fewer elements than the program has threads: if two
    threads held the same channel, one could read it after the other has overwritten it."""
    parts = [triton.next_power_of_2(size) if size else 0 for size in (half, head_dim - 2 * half)]
    num_warps = 1 if all(parts) else 2
    elements = 32 * num_warps * _THREAD_ELEMENTS
    block_heads = max((_MOST_ELEMENTS if all(parts) else elements) // max(parts), 1)
    block_heads = max(min(block_heads, 16), 32 * num_warps // min(size for size in parts if size))
    return {"BLOCK_HEADS": block_heads, "BLOCK_HALF": parts[0], "BLOCK_REST": parts[1]}, num_warps
