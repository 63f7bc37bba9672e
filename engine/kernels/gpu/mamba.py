"""Convolution and selective scan of Mamba layers (Gu and Dao 2023) on states in pages.

The scan has one program per sequence and block of channels. It goes over the tokens with the state in registers, and
loads the next four tokens while it computes four. It is parallel over sequences and channels only, so a token's result
does not depend on how its prompt was split into chunks.

T = tokens of the step, B = sequences, I = channels, S = state elements per channel, K = taps of the convolution.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.state_kernels import StatesInPlace

_CONV_CHANNELS = 256
_CONV_TIMES = 8
_SCAN_CHANNELS = 32


@triton.jit
def _silu(x):
    """x sigmoid(x)."""
    return x * tl.sigmoid(x)


@triton.jit
def _activated(x, HAS_SILU: tl.constexpr):
    """silu(x) if HAS_SILU, else x."""
    if HAS_SILU:
        return _silu(x)
    return x


@triton.jit
def _convolve_one(
    x_ptr,
    taps_ptr,
    bias_ptr,
    states_ptr,
    page_ids_ptr,
    starts_ptr,
    query_starts_ptr,
    output_ptr,
    x_stride,
    page_stride,
    output_stride,
    NUM_CHANNELS: tl.constexpr,
    NUM_TAPS: tl.constexpr,
    HAS_SILU: tl.constexpr,
    BLOCK: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (B, blocks of I). One token per sequence: writes its output and the new state in one launch."""
    wait_for_previous(WAITS)
    row = tl.program_id(0)
    page = tl.load(page_ids_ptr + row)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_channel = channels < NUM_CHANNELS
    token = tl.load(query_starts_ptr + row).to(tl.int64)
    output = output_ptr + token * output_stride + channels
    if page < 0:
        tl.store(output, tl.zeros((BLOCK,), output_ptr.dtype.element_ty), mask=is_channel)
        return
    is_old = is_channel & (tl.load(starts_ptr + row) > 0)
    state_ptr = states_ptr + page * page_stride + channels
    x = tl.load(x_ptr + token * x_stride + channels, mask=is_channel, other=0.0)
    tap = tl.load(taps_ptr + (NUM_TAPS - 1) * NUM_CHANNELS + channels, mask=is_channel, other=0.0)
    total = x.to(tl.float32) * tap.to(tl.float32)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + channels, mask=is_channel, other=0.0).to(tl.float32)
    for k in tl.static_range(NUM_TAPS - 1):
        old = tl.load(state_ptr + k * NUM_CHANNELS, mask=is_old, other=0.0)
        tap = tl.load(taps_ptr + k * NUM_CHANNELS + channels, mask=is_channel, other=0.0)
        total += old.to(tl.float32) * tap.to(tl.float32)
        if k > 0:  # each thread has its own channels, and has read this place already
            tl.store(state_ptr + (k - 1) * NUM_CHANNELS, old, mask=is_channel)
    tl.store(state_ptr + (NUM_TAPS - 2) * NUM_CHANNELS, x.to(states_ptr.dtype.element_ty), mask=is_channel)
    tl.store(output, _activated(total, HAS_SILU).to(output_ptr.dtype.element_ty), mask=is_channel)


@triton.jit
def _convolve(
    x_ptr,
    taps_ptr,
    bias_ptr,
    states_ptr,
    page_ids_ptr,
    starts_ptr,
    query_starts_ptr,
    output_ptr,
    x_stride,
    page_stride,
    output_stride,
    NUM_CHANNELS: tl.constexpr,
    NUM_TAPS: tl.constexpr,
    HAS_SILU: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_TIMES: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (B, blocks of tokens, blocks of I). Earlier inputs come from the step or from the state, which is only read
    here."""
    wait_for_previous(WAITS)
    row = tl.program_id(0)
    page = tl.load(page_ids_ptr + row)
    first = tl.load(query_starts_ptr + row)
    num_times = tl.load(query_starts_ptr + row + 1) - first
    if tl.program_id(1) * BLOCK_TIMES >= num_times:
        return
    times = (tl.program_id(1) * BLOCK_TIMES + tl.arange(0, BLOCK_TIMES))[:, None]
    channels = (tl.program_id(2) * BLOCK + tl.arange(0, BLOCK))[None, :]
    is_channel = channels < NUM_CHANNELS
    is_here = is_channel & (times < num_times)
    tokens = first.to(tl.int64) + times
    output = output_ptr + tokens * output_stride + channels
    if page < 0:
        tl.store(output, tl.zeros((BLOCK_TIMES, BLOCK), output_ptr.dtype.element_ty), mask=is_here)
        return
    is_old = is_here & (tl.load(starts_ptr + row) > 0)
    total = tl.zeros((BLOCK_TIMES, BLOCK), tl.float32)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + channels, mask=is_channel, other=0.0).to(tl.float32)
    for k in tl.static_range(NUM_TAPS):
        age = NUM_TAPS - 1 - k
        tap = tl.load(taps_ptr + k * NUM_CHANNELS + channels, mask=is_channel, other=0.0).to(tl.float32)
        new_ptr = x_ptr + (tokens - age) * x_stride + channels
        total += tap * tl.load(new_ptr, mask=is_here & (times >= age), other=0.0).to(tl.float32)
        if age > 0:
            old_ptr = states_ptr + page * page_stride + (NUM_TAPS - 1 + times - age) * NUM_CHANNELS + channels
            total += tap * tl.load(old_ptr, mask=is_old & (times < age), other=0.0).to(tl.float32)
    tl.store(output, _activated(total, HAS_SILU).to(output_ptr.dtype.element_ty), mask=is_here)


@triton.jit
def _keep_last(
    x_ptr,
    states_ptr,
    page_ids_ptr,
    starts_ptr,
    query_starts_ptr,
    x_stride,
    page_stride,
    NUM_CHANNELS: tl.constexpr,
    NUM_TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (B, blocks of I), after _convolve. The state becomes the last K - 1 inputs; if the step has fewer tokens,
    older inputs move down in it."""
    wait_for_previous(WAITS)
    row = tl.program_id(0)
    page = tl.load(page_ids_ptr + row)
    if page < 0:
        return
    first = tl.load(query_starts_ptr + row)
    last = tl.load(query_starts_ptr + row + 1)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_channel = channels < NUM_CHANNELS
    is_old = is_channel & (tl.load(starts_ptr + row) > 0)
    state_ptr = states_ptr + page * page_stride + channels
    for k in tl.static_range(NUM_TAPS - 1):
        token = last - (NUM_TAPS - 1) + k
        is_new = token >= first
        new_ptr = x_ptr + token.to(tl.int64) * x_stride + channels
        new = tl.load(new_ptr, mask=is_channel & is_new, other=0.0)
        old = tl.load(state_ptr + (k + last - first) * NUM_CHANNELS, mask=is_old & (token < first), other=0.0)
        kept = tl.where(is_new, new.to(states_ptr.dtype.element_ty), old)
        tl.store(state_ptr + k * NUM_CHANNELS, kept, mask=is_channel)


@triton.jit
def softplus(x):
    """log(1 + exp(x)); the logarithm is corrected for the bits of a small y = exp(x) that 1 + y has lost."""
    y = tl.exp(tl.minimum(x, 20.0))
    rounded = 1.0 + y
    exact = tl.where(rounded == 1.0, y, tl.log(rounded) * (y / tl.where(rounded == 1.0, 1.0, rounded - 1.0)))
    return tl.where(x > 20.0, x, exact)


@triton.jit
def _load_token(pointers, strides, masks, token, last):
    """x, dt, b, c, gate of one token; zeros behind the last token."""
    is_channel, is_number = masks[0] & (token < last), masks[1] & (token < last)
    x = tl.load(pointers[0] + token * strides[0], mask=is_channel, other=0.0)
    dt = tl.load(pointers[1] + token * strides[1], mask=is_channel, other=0.0)
    b = tl.load(pointers[2] + token * strides[2], mask=is_number, other=0.0)
    c = tl.load(pointers[3] + token * strides[3], mask=is_number, other=0.0)
    gate = tl.load(pointers[4] + token * strides[4], mask=is_channel, other=0.0)
    return x, dt, b, c, gate


@triton.jit
def _advance(state, values, a, d, output_ptr, output_stride, is_channel, token, last):
    """Writes one token's output and returns the state after it. Behind the last token nothing is written or changed."""
    x, dt, b, c, gate = values
    x = x.to(tl.float32)
    step = tl.where(token < last, softplus(dt.to(tl.float32)), 0.0)
    state = tl.exp(step[:, None] * a) * state + (step * x)[:, None] * b.to(tl.float32)[None, :]
    y = tl.sum(state * c.to(tl.float32)[None, :], axis=1) + d * x
    y *= _silu(gate.to(tl.float32))
    output_ptr += token * output_stride
    tl.store(output_ptr, y.to(output_ptr.dtype.element_ty), mask=is_channel & (token < last))
    return state


@triton.jit
def _scan(
    x_ptr,
    dt_ptr,
    b_ptr,
    c_ptr,
    gate_ptr,
    a_ptr,
    d_ptr,
    states_ptr,
    page_ids_ptr,
    starts_ptr,
    query_starts_ptr,
    output_ptr,
    x_stride,
    dt_stride,
    b_stride,
    c_stride,
    gate_stride,
    page_stride,
    output_stride,
    NUM_CHANNELS: tl.constexpr,
    NUM_STATES: tl.constexpr,
    IS_PROMPT: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_STATES: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (B, blocks of I). Writes output [T, I] and updates the states [I, S] in place. IS_PROMPT: a sequence may
    have more than one token."""
    wait_for_previous(WAITS)
    row = tl.program_id(0)
    page = tl.load(page_ids_ptr + row)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_channel = channels < NUM_CHANNELS
    token = tl.load(query_starts_ptr + row).to(tl.int64)
    last = tl.load(query_starts_ptr + row + 1).to(tl.int64)
    output_ptr += channels
    if page < 0:
        while token < last:
            nothing = tl.zeros((BLOCK,), output_ptr.dtype.element_ty)
            tl.store(output_ptr + token * output_stride, nothing, mask=is_channel)
            token += 1
        return
    numbers = tl.arange(0, BLOCK_STATES)
    is_number = numbers < NUM_STATES
    places = channels[:, None] * NUM_STATES + numbers[None, :]
    is_place = is_channel[:, None] & is_number[None, :]
    is_old = is_place & (tl.load(starts_ptr + row) > 0)
    state_ptr = states_ptr + page * page_stride + places
    state = tl.load(state_ptr, mask=is_old, other=0.0)
    a = tl.load(a_ptr + places, mask=is_place, other=0.0)
    d = tl.load(d_ptr + channels, mask=is_channel, other=0.0)
    pointers = (x_ptr + channels, dt_ptr + channels, b_ptr + numbers, c_ptr + numbers, gate_ptr + channels)
    strides = (x_stride, dt_stride, b_stride, c_stride, gate_stride)
    masks = (is_channel, is_number)
    first = _load_token(pointers, strides, masks, token, last)
    if IS_PROMPT:
        second = _load_token(pointers, strides, masks, token + 1, last)
        third = _load_token(pointers, strides, masks, token + 2, last)
        fourth = _load_token(pointers, strides, masks, token + 3, last)
        while token < last:
            next_first = _load_token(pointers, strides, masks, token + 4, last)
            next_second = _load_token(pointers, strides, masks, token + 5, last)
            next_third = _load_token(pointers, strides, masks, token + 6, last)
            next_fourth = _load_token(pointers, strides, masks, token + 7, last)
            state = _advance(state, first, a, d, output_ptr, output_stride, is_channel, token, last)
            state = _advance(state, second, a, d, output_ptr, output_stride, is_channel, token + 1, last)
            state = _advance(state, third, a, d, output_ptr, output_stride, is_channel, token + 2, last)
            state = _advance(state, fourth, a, d, output_ptr, output_stride, is_channel, token + 3, last)
            first, second, third, fourth = next_first, next_second, next_third, next_fourth
            token += 4
    else:
        state = _advance(state, first, a, d, output_ptr, output_stride, is_channel, token, last)
    tl.store(state_ptr, state, mask=is_place)


def causal_conv(
    x: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor | None, states: StatesInPlace, *, has_silu: bool = True
) -> torch.Tensor:
    """x [T, I] -> the causal convolution, or silu of it, [T, I], newly allocated; updates the states' pages [K - 1, I]
    in place. Contract: StateKernels.causal_conv."""
    num_tokens, num_channels = x.shape
    num_taps, num_rows = taps.shape[0], len(states.page_ids)
    _check(states, (num_taps - 1, num_channels))
    assert x.stride(1) == 1
    assert taps.shape == (num_taps, num_channels)
    assert taps.is_contiguous()
    assert bias is None or bias.shape == (num_channels,)
    output = torch.empty((num_tokens, num_channels), dtype=x.dtype, device=x.device)
    pointers = states.page_ids, states.starts, states.query_starts
    strides = x.stride(0), states.pages.stride(0)
    sizes = {"NUM_CHANNELS": num_channels, "NUM_TAPS": num_taps, "BLOCK": _CONV_CHANNELS}
    blocks = triton.cdiv(num_channels, _CONV_CHANNELS)
    inputs = x, taps, bias, states.pages, *pointers, output, *strides, output.stride(0)
    options = launch_options(x.device)
    if states.max_queries == 1:
        _convolve_one[(num_rows, blocks)](*inputs, **sizes, HAS_SILU=has_silu, **options, num_warps=1)
        return output
    times = triton.cdiv(states.max_queries, _CONV_TIMES)
    _convolve[(num_rows, times, blocks)](
        *inputs, **sizes, HAS_SILU=has_silu, BLOCK_TIMES=_CONV_TIMES, **options, num_warps=4
    )
    _keep_last[(num_rows, blocks)](x, states.pages, *pointers, *strides, **sizes, **options, num_warps=1)
    return output


def selective_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    gate: torch.Tensor,
    a: torch.Tensor,
    d: torch.Tensor,
    states: StatesInPlace,
) -> torch.Tensor:
    """x [T, I] -> gated output of the state space model [T, I], newly allocated; updates the states' pages [I, S] in
    place. Contract: StateKernels.selective_scan."""
    num_tokens, num_channels = x.shape
    num_states = a.shape[1]
    _check(states, (num_channels, num_states))
    assert states.pages.dtype == a.dtype == d.dtype == torch.float32
    assert a.shape == (num_channels, num_states)
    assert a.is_contiguous()
    assert d.shape == (num_channels,)
    assert x.shape == dt.shape == gate.shape
    assert b.shape == c.shape == (num_tokens, num_states)
    assert all(part.stride(1) == 1 for part in (x, dt, b, c, gate))
    output = torch.empty((num_tokens, num_channels), dtype=x.dtype, device=x.device)
    _scan[(len(states.page_ids), triton.cdiv(num_channels, _SCAN_CHANNELS))](
        x,
        dt,
        b,
        c,
        gate,
        a,
        d,
        states.pages,
        states.page_ids,
        states.starts,
        states.query_starts,
        output,
        *(part.stride(0) for part in (x, dt, b, c, gate, states.pages, output)),
        NUM_CHANNELS=num_channels,
        NUM_STATES=num_states,
        IS_PROMPT=states.max_queries > 1,
        BLOCK=_SCAN_CHANNELS,
        BLOCK_STATES=triton.next_power_of_2(num_states),
        **launch_options(x.device),
        num_warps=1,
    )
    return output


def _check(states: StatesInPlace, shape: tuple[int, int]) -> None:
    num_rows = len(states.page_ids)
    assert states.pages.shape[1:] == shape
    assert states.pages.stride()[1:] == (shape[1], 1)
    assert states.page_ids.dtype == torch.int64
    assert states.starts.shape == (num_rows,)
    assert states.query_starts.shape == (num_rows + 1,)
    assert states.starts.dtype == states.query_starts.dtype == torch.int32
    assert all(rows.is_contiguous() for rows in (states.page_ids, states.starts, states.query_starts))
