"""The recurrence of Mamba-2 (Dao and Gu 2024) on states in pages.

One program per sequence, head and block of channels. It goes over the tokens with the state in registers, and loads the
next token while it computes one. Long prompts go in chunks instead (head_scan_chunks.py). How a sequence is computed
depends on the number of its own tokens.

T = tokens of the step, B = sequences, H = heads, P = channels of a head, G = groups, S = numbers of state per channel.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.head_scan_chunks import advance_chunks
from engine.kernels.gpu.mamba import softplus
from engine.kernels.state_kernels import ScanHeads, StatesInPlace

#: Numbers of state that one warp holds: 64 registers of each of its threads.
_NUMBERS_OF_WARP = 2048
#: Sequences of so many tokens are computed in chunks [estimated].
_LEAST_CHUNKED = 48


@triton.jit
def _load_token(pointers, strides, masks, token, last):
    """x, dt, b, c of one token; zeros behind the last token."""
    is_channel, is_number = masks[0] & (token < last), masks[1] & (token < last)
    x = tl.load(pointers[0] + token * strides[0], mask=is_channel, other=0.0)
    dt = tl.load(pointers[1] + token * strides[1], mask=token < last, other=0.0)
    b = tl.load(pointers[2] + token * strides[2], mask=is_number, other=0.0)
    c = tl.load(pointers[3] + token * strides[3], mask=is_number, other=0.0)
    return x, dt, b, c


@triton.jit
def _scan(
    x_ptr,
    dt_ptr,
    b_ptr,
    c_ptr,
    a_ptr,
    d_ptr,
    dt_bias_ptr,
    states_ptr,
    page_ids_ptr,
    starts_ptr,
    query_starts_ptr,
    output_ptr,
    least_step,
    largest_step,
    x_stride,
    dt_stride,
    b_stride,
    c_stride,
    page_stride,
    output_stride,
    most_tokens,
    NUM_CHANNELS: tl.constexpr,
    NUM_STATES: tl.constexpr,
    HEADS_OF_GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_STATES: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (B, H, blocks of P). Writes output [T, H P] and updates the states [H, P, S] in place, of sequences of no
    more than most_tokens tokens."""
    wait_for_previous(WAITS)
    row = tl.program_id(0)
    head = tl.program_id(1)
    page = tl.load(page_ids_ptr + row)
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    is_channel = channels < NUM_CHANNELS
    token = tl.load(query_starts_ptr + row).to(tl.int64)
    last = tl.load(query_starts_ptr + row + 1).to(tl.int64)
    output_ptr += head * NUM_CHANNELS + channels
    if page < 0:
        while token < last:
            nothing = tl.zeros((BLOCK,), output_ptr.dtype.element_ty)
            tl.store(output_ptr + token * output_stride, nothing, mask=is_channel)
            token += 1
        return
    if last - token > most_tokens:
        return
    numbers = tl.arange(0, BLOCK_STATES)
    is_number = numbers < NUM_STATES
    places = (head * NUM_CHANNELS + channels)[:, None] * NUM_STATES + numbers[None, :]
    is_place = is_channel[:, None] & is_number[None, :]
    state_ptr = states_ptr + page * page_stride + places
    state = tl.load(state_ptr, mask=is_place & (tl.load(starts_ptr + row) > 0), other=0.0)
    a = tl.load(a_ptr + head)
    d = tl.load(d_ptr + head)
    dt_bias = tl.load(dt_bias_ptr + head)
    group_numbers = head // HEADS_OF_GROUP * NUM_STATES + numbers
    pointers = (
        x_ptr + head * NUM_CHANNELS + channels,
        dt_ptr + head,
        b_ptr + group_numbers,
        c_ptr + group_numbers,
    )
    strides = (x_stride, dt_stride, b_stride, c_stride)
    masks = (is_channel, is_number)
    x, dt, b, c = _load_token(pointers, strides, masks, token, last)
    while token < last:
        next_x, next_dt, next_b, next_c = _load_token(pointers, strides, masks, token + 1, last)
        value = x.to(tl.float32)
        step = tl.minimum(tl.maximum(softplus(dt.to(tl.float32) + dt_bias), least_step), largest_step)
        state = tl.exp(step * a) * state + (step * value)[:, None] * b.to(tl.float32)[None, :]
        y = tl.sum(state * c.to(tl.float32)[None, :], axis=1) + d * value
        tl.store(output_ptr + token * output_stride, y.to(output_ptr.dtype.element_ty), mask=is_channel)
        x, dt, b, c = next_x, next_dt, next_b, next_c
        token += 1
    tl.store(state_ptr, state, mask=is_place)


def head_scan(
    x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, c: torch.Tensor, heads: ScanHeads, states: StatesInPlace
) -> torch.Tensor:
    """x [T, H P] -> output of the heads [T, H P], newly allocated; updates the states' pages [H, P, S] in place.
    Contract: StateKernels.head_scan."""
    num_tokens, num_rows = x.shape[0], len(states.page_ids)
    num_heads, num_channels, num_states = states.pages.shape[1:]
    num_groups = b.shape[1] // num_states
    assert states.pages[0].is_contiguous()
    assert states.page_ids.dtype == torch.int64
    assert states.starts.dtype == states.query_starts.dtype == torch.int32
    assert states.query_starts.shape == (num_rows + 1,)
    assert x.shape == (num_tokens, num_heads * num_channels)
    assert dt.shape == (num_tokens, num_heads)
    assert b.shape == c.shape == (num_tokens, num_groups * num_states)
    assert all(part.stride(1) == 1 for part in (x, dt, b, c))
    floats = states.pages, heads.a, heads.d, heads.dt_bias
    assert all(part.dtype == torch.float32 for part in floats)
    output = torch.empty((num_tokens, num_heads * num_channels), dtype=x.dtype, device=x.device)
    block_states = triton.next_power_of_2(num_states)
    block = max(1, min(triton.next_power_of_2(num_channels), _NUMBERS_OF_WARP // block_states))
    _scan[(num_rows, num_heads, triton.cdiv(num_channels, block))](
        x,
        dt,
        b,
        c,
        heads.a,
        heads.d,
        heads.dt_bias,
        states.pages,
        states.page_ids,
        states.starts,
        states.query_starts,
        output,
        *heads.step_limits,
        *(part.stride(0) for part in (x, dt, b, c, states.pages, output)),
        _LEAST_CHUNKED - 1,
        NUM_CHANNELS=num_channels,
        NUM_STATES=num_states,
        HEADS_OF_GROUP=num_heads // num_groups,
        BLOCK=block,
        BLOCK_STATES=block_states,
        **launch_options(x.device),
        num_warps=1,
    )
    if states.max_queries >= _LEAST_CHUNKED:
        advance_chunks(x, dt, b, c, heads, states, output, _LEAST_CHUNKED)
    return output
