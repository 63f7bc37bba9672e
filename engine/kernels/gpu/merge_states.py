"""Merging attention states over disjoint tokens into one result: outputs weighted by their sums of exponentials
(Flash-Decoding, Dao et al. 2023). One program per row and a few heads. attend_pages merges the parts of most decodes
itself, by `merge_parts`.

A program reads as many states as its row has, eight at a time, in an order that depends on nothing else. So the bits of
a row depend neither on other rows nor on the room for states.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.launching import launch

_LOG2_E = tl.constexpr(1.4426950408889634)

#: States that are read together; contexts of up to 2,048 tokens have no more.
_BLOCK_S = tl.constexpr(8)
#: Channels of a program's heads together: 32 registers of a thread hold those of eight states.
_CHANNELS = 256
_NUM_WARPS = 2
#: The same for a program of attend_pages, which has four warps.
_CHANNELS_OF_PARTS = tl.constexpr(512)


@triton.jit
def merged(
    outputs_ptrs,
    lse_ptrs,
    num_states,
    outputs_state_stride,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    """[BLOCK_H, BLOCK_D] float32 from the first num_states states of some heads, whose first states are at outputs_ptrs
    [BLOCK_H, BLOCK_D] and lse_ptrs [BLOCK_H, 1]; zeros without states."""
    is_channel = (tl.arange(0, BLOCK_D) < HEAD_DIM)[None, :]
    total = tl.zeros((BLOCK_H, BLOCK_D), tl.float32)
    total_sum = tl.zeros((BLOCK_H, 1), tl.float32)
    total_max = tl.full((BLOCK_H, 1), float("-inf"), tl.float32)
    for first in range(0, num_states, _BLOCK_S):
        # States behind the last one are the last one again, with weight 0: loads without masks can wait together. They
        # read the second-level cache, which has what other multiprocessors have just written.
        outputs = ()
        sums = ()
        for i in tl.static_range(_BLOCK_S):
            place = tl.minimum(first + i, num_states - 1)
            ptrs = outputs_ptrs + place * outputs_state_stride
            if HEAD_DIM == BLOCK_D:
                outputs += (tl.load(ptrs, cache_modifier=".cg"),)  # type: ignore[assignment]
            else:
                outputs += (tl.load(ptrs, mask=is_channel, other=0.0, cache_modifier=".cg"),)  # type: ignore[assignment]
            sums += (tl.load(lse_ptrs + place, cache_modifier=".cg"),)  # type: ignore[assignment]
        new_max = total_max
        for i in tl.static_range(_BLOCK_S):
            new_max = tl.maximum(new_max, sums[i] * _LOG2_E)
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        decay = tl.exp2(total_max - shift)
        total *= decay
        total_sum *= decay
        for i in tl.static_range(_BLOCK_S):
            weight = tl.where(first + i < num_states, tl.exp2(sums[i] * _LOG2_E - shift), 0.0)
            total += outputs[i] * weight
            total_sum += weight
        total_max = new_max
    return total / tl.where(total_sum > 0.0, total_sum, 1.0)


@triton.jit
def merge_parts(
    states_ptr,
    lse_ptr,
    merged_ptr,
    arrivals_ptr,
    num_programs,
    num_states,
    head_stride,
    state_stride,
    lse_head_stride,
    merged_head_stride,
    GROUP_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Called by each of num_programs programs behind its last state of a tile of one query. The one that calls last
    merges all states of the tile's heads, which begin at states_ptr and lse_ptr, into merged_ptr, and zeroes the
    counter."""
    MOST_HEADS: tl.constexpr = max(_CHANNELS_OF_PARTS // BLOCK_D, 1)
    BLOCK_H: tl.constexpr = min(triton.next_power_of_2(GROUP_SIZE), MOST_HEADS)
    channels = tl.arange(0, BLOCK_D)[None, :]
    tl.debug_barrier()  # the states of all threads lie before the arrival of one of them
    if tl.atomic_add(arrivals_ptr, 1, sem="acq_rel", scope="gpu") == num_programs - 1:
        for first in range(0, GROUP_SIZE, BLOCK_H):
            heads = (first + tl.arange(0, BLOCK_H))[:, None]
            own_heads = tl.minimum(heads, GROUP_SIZE - 1)
            states = merged(
                states_ptr + own_heads * head_stride + channels, lse_ptr + own_heads * lse_head_stride, num_states,
                state_stride, HEAD_DIM, BLOCK_D, BLOCK_H,
            )  # fmt: skip
            is_stored = (heads < GROUP_SIZE) & (channels < HEAD_DIM)
            merged_ptrs = merged_ptr + own_heads * merged_head_stride + channels
            tl.store(merged_ptrs, states.to(merged_ptr.dtype.element_ty), mask=is_stored)
        tl.store(arrivals_ptr, 0)


@triton.jit(
    do_not_specialize=["lse_stride", "lse_head_stride", "max_states", "num_heads"],
    do_not_specialize_on_alignment=["counts_ptr"],
)
def _merge_states(
    outputs_ptr,
    lse_ptr,
    counts_ptr,
    output_ptr,
    outputs_stride,
    outputs_head_stride,
    outputs_state_stride,
    lse_stride,
    lse_head_stride,
    output_stride,
    output_head_stride,
    max_states,
    num_heads,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (rows, H / BLOCK_H). outputs [rows, H, states, D] and lse [rows, H, states] float32, counts [rows] ->
    output [rows, H, D]."""
    wait_for_previous(WAITS)
    row = tl.program_id(0).to(tl.int64)
    own_heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    heads = tl.minimum(own_heads, num_heads - 1)
    channels = tl.arange(0, BLOCK_D)
    num_states = tl.minimum(tl.load(counts_ptr + row), max_states)  # a row of no sequence may have any count
    outputs_ptrs = outputs_ptr + row * outputs_stride + (heads * outputs_head_stride)[:, None] + channels[None, :]
    lse_ptrs = lse_ptr + row * lse_stride + (heads * lse_head_stride)[:, None]
    states = merged(outputs_ptrs, lse_ptrs, num_states, outputs_state_stride, HEAD_DIM, BLOCK_D, BLOCK_H)
    output_ptrs = output_ptr + row * output_stride + (heads * output_head_stride)[:, None] + channels[None, :]
    tl.store(
        output_ptrs,
        states.to(output_ptr.dtype.element_ty),
        mask=(own_heads < num_heads)[:, None] & (channels < HEAD_DIM)[None, :],
    )


def merge_states(outputs: torch.Tensor, lse: torch.Tensor, counts: torch.Tensor, output: torch.Tensor) -> None:
    """Writes output [rows, H, D] from outputs [rows or more, H, states, D] float32, lse [rows or more, H, states]
    float32, strided both, and counts [rows or more] int32: the number of each row's states, its first ones.

    A state with lse -inf is empty: its output counts nothing, but must be a number. A row without states becomes zeros.
    Raises ValueError if shapes or strides do not fit.
    """
    num_rows, num_heads, head_dim = output.shape
    states = outputs.shape[2]
    if outputs.shape[1:] != (num_heads, states, head_dim) or lse.shape != outputs.shape[:3] or len(outputs) < num_rows:
        raise ValueError(f"states {list(outputs.shape)}, sums {list(lse.shape)} and output {list(output.shape)}")
    if outputs.stride(3) != 1 or lse.stride(2) != 1 or output.stride(2) != 1:
        raise ValueError("channels, and sums of a head's states, must be adjacent")
    if len(counts) < num_rows or counts.dtype != torch.int32 or counts.stride(0) != 1:
        raise ValueError(f"counts must be {num_rows} adjacent int32, not {list(counts.shape)} {counts.dtype}")
    if not num_rows:
        return
    blocks, num_warps = _blocks(head_dim)
    launch(_merge_states, (num_rows, triton.cdiv(num_heads, blocks["BLOCK_H"])))(
        outputs,
        lse,
        counts,
        output,
        *outputs.stride()[:3],
        *lse.stride()[:2],
        *output.stride()[:2],
        states,
        num_heads,
        HEAD_DIM=head_dim,
        **blocks,
        **launch_options(output.device),
        num_warps=num_warps,
    )


def _blocks(head_dim: int) -> tuple[dict[str, int], int]:
    block_d = triton.next_power_of_2(head_dim)
    return {"BLOCK_D": block_d, "BLOCK_H": max(_CHANNELS // block_d, 1)}, _NUM_WARPS
