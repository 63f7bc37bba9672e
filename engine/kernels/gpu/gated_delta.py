"""The gated delta rule (Yang et al. 2024) on states in pages, also with a decay for every channel of a key (Kimi delta
attention, arXiv 2510.26692).

A program advances a block of value channels of one head of a sequence: the channels of a state do not depend on each
other. It goes over the tokens with its part of the state in registers, and loads the next token while it computes one.
Long prompts go in chunks instead (delta_chunks.py). A last kernel norms and gates the heads, which need all their
channels. How a sequence is computed depends on the number of its own tokens.

T = tokens of the step, B = sequences, H = value heads, G = key heads, D = channels of a key, V = of a value.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.delta_chunks import LENGTH_EPS, advance_chunks
from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.mamba import _silu, softplus
from engine.kernels.state_kernels import DeltaWeights, StatesInPlace

_BLOCK_VALUES = 8
_NORM_TOKENS = 8
#: Sequences of so many tokens are computed in chunks: one full chunk and a short one take as long as those token by
#: token [estimated].
_LEAST_CHUNKED = 48


@triton.jit
def _load_token(pointers, strides, masks, token, last, BY_CHANNEL: tl.constexpr):
    """Query, key, value, step or steps, and strength of one token; zeros behind the last token."""
    is_key, is_value = masks[0] & (token < last), masks[1] & (token < last)
    query = tl.load(pointers[0] + token * strides[0], mask=is_key, other=0.0)
    key = tl.load(pointers[1] + token * strides[0], mask=is_key, other=0.0)
    value = tl.load(pointers[2] + token * strides[0], mask=is_value, other=0.0)
    step = tl.load(pointers[3] + token * strides[1], mask=is_key if BY_CHANNEL else token < last, other=0.0)
    strength = tl.load(pointers[4] + token * strides[2], mask=token < last, other=0.0)
    return query, key, value, step, strength


@triton.jit
def _unit(x):
    """x divided by its length, in float32."""
    x = x.to(tl.float32)
    return x * tl.rsqrt(tl.sum(x * x, axis=0) + LENGTH_EPS)


@triton.jit
def _advance(
    qkv_ptr,
    a_ptr,
    b_ptr,
    rates_ptr,
    step_bias_ptr,
    states_ptr,
    page_ids_ptr,
    starts_ptr,
    query_starts_ptr,
    read_ptr,
    qkv_stride,
    a_stride,
    b_stride,
    page_stride,
    scale,
    most_tokens,
    NUM_HEADS: tl.constexpr,
    NUM_KEY_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    BY_CHANNEL: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (B, H, blocks of V). Writes what the queries read, [T, H, V] float32, and updates the states [H, D, V] in
    place; of sequences of no more than most_tokens tokens. BY_CHANNEL: a head has a step and a bias for each channel of
    its key, not one."""
    wait_for_previous(WAITS)
    row, head = tl.program_id(0), tl.program_id(1)
    page = tl.load(page_ids_ptr + row)
    token = tl.load(query_starts_ptr + row).to(tl.int64)
    last = tl.load(query_starts_ptr + row + 1).to(tl.int64)
    key_channels = tl.arange(0, BLOCK_KEYS)
    values = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    is_key, is_value = key_channels < KEY_DIM, values < VALUE_DIM
    read_ptr += head * VALUE_DIM + values
    read_stride = NUM_HEADS * VALUE_DIM
    if page < 0:
        while token < last:
            tl.store(read_ptr + token * read_stride, tl.zeros((BLOCK,), tl.float32), mask=is_value)
            token += 1
        return
    if last - token > most_tokens:
        return
    key_head = head // (NUM_HEADS // NUM_KEY_HEADS)
    query_ptr = qkv_ptr + key_head * KEY_DIM + key_channels
    value_ptr = qkv_ptr + 2 * NUM_KEY_HEADS * KEY_DIM + head * VALUE_DIM + values
    steps = head * KEY_DIM + key_channels if BY_CHANNEL else head
    pointers = (query_ptr, query_ptr + NUM_KEY_HEADS * KEY_DIM, value_ptr, a_ptr + steps, b_ptr + head)
    strides = (qkv_stride, a_stride, b_stride)
    masks = (is_key, is_value)
    rate = tl.load(rates_ptr + head)
    step_bias = tl.load(step_bias_ptr + steps, mask=is_key if BY_CHANNEL else token < last, other=0.0)
    places = (head * KEY_DIM + key_channels[:, None]) * VALUE_DIM + values[None, :]
    is_place = is_key[:, None] & is_value[None, :]
    state_ptr = states_ptr + page * page_stride + places
    state = tl.load(state_ptr, mask=is_place & (tl.load(starts_ptr + row) > 0), other=0.0)
    now = _load_token(pointers, strides, masks, token, last, BY_CHANNEL)
    while token < last:
        following = _load_token(pointers, strides, masks, token + 1, last, BY_CHANNEL)
        query, key, value, step, strength = now
        key = _unit(key)[:, None]
        decay = tl.exp(rate * softplus(step.to(tl.float32) + step_bias))
        state *= decay[:, None] if BY_CHANNEL else decay
        wanted = value.to(tl.float32) - tl.sum(state * key, axis=0)
        state += key * (tl.sigmoid(strength.to(tl.float32)) * wanted)[None, :]
        read = tl.sum(state * (_unit(query) * scale)[:, None], axis=0)
        tl.store(read_ptr + token * read_stride, read, mask=is_value)
        now = following
        token += 1
    tl.store(state_ptr, state, mask=is_place)


@triton.jit
def _gated_norm(
    read_ptr,
    gate_ptr,
    norm_ptr,
    output_ptr,
    num_tokens,
    gate_stride,
    eps,
    NUM_HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    HAS_SILU: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (blocks of tokens, H). Writes output [T, H, V]. HAS_SILU: the gate is silu of the given one, else its
    sigmoid."""
    wait_for_previous(WAITS)
    tokens = (tl.program_id(0) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS))[:, None].to(tl.int64)
    head = tl.program_id(1)
    values = tl.arange(0, BLOCK)[None, :]
    is_value = values < VALUE_DIM
    is_here = is_value & (tokens < num_tokens)
    places = (tokens * NUM_HEADS + head) * VALUE_DIM + values
    read = tl.load(read_ptr + places, mask=is_here, other=0.0)
    gate = tl.load(gate_ptr + tokens * gate_stride + head * VALUE_DIM + values, mask=is_here, other=0.0)
    scales = tl.load(norm_ptr + values, mask=is_value, other=0.0)
    squares = tl.sum(read * read, axis=1, keep_dims=True)
    gate = gate.to(tl.float32)
    gate = _silu(gate) if HAS_SILU else tl.sigmoid(gate)
    gated = read * tl.rsqrt(squares / VALUE_DIM + eps) * scales * gate
    output = tl.where(squares > 0.0, gated, 0.0)  # the gate of padding may be any number, also none
    tl.store(output_ptr + places, output.to(output_ptr.dtype.element_ty), mask=is_here)


def gated_delta(
    qkv: torch.Tensor,
    gate: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    weights: DeltaWeights,
    states: StatesInPlace,
) -> torch.Tensor:
    """qkv [T, 2 G D + H V] -> the gated norm of what the queries read, [T, H V], newly allocated; updates the states'
    pages [H, D, V] in place. Contract: StateKernels.gated_delta."""
    return _launch(qkv, gate, a, b, weights, states, is_by_channel=False)


def channel_delta(
    qkv: torch.Tensor,
    gate: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    weights: DeltaWeights,
    states: StatesInPlace,
) -> torch.Tensor:
    """qkv [T, 2 H D + H V] -> the gated norm of what the queries read, [T, H V], newly allocated; updates the states'
    pages [H, D, V] in place. Contract: StateKernels.channel_delta."""
    return _launch(qkv, gate, a, b, weights, states, is_by_channel=True)


def _launch(
    qkv: torch.Tensor,
    gate: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    weights: DeltaWeights,
    states: StatesInPlace,
    *,
    is_by_channel: bool,
) -> torch.Tensor:
    num_heads, key_dim, value_dim = states.pages.shape[1:]
    num_tokens, num_rows = len(qkv), len(states.page_ids)
    num_key_heads = (qkv.shape[1] - num_heads * value_dim) // (2 * key_dim)
    assert states.pages.dtype == weights.rates.dtype == weights.step_bias.dtype == weights.norm.dtype == torch.float32
    assert states.pages.stride()[1:] == (key_dim * value_dim, value_dim, 1)
    assert states.page_ids.dtype == torch.int64
    assert states.starts.dtype == states.query_starts.dtype == torch.int32
    assert qkv.stride(1) == gate.stride(1) == 1
    assert all(part.stride(1) == 1 or part.shape[1] == 1 for part in (a, b))
    assert gate.shape == (num_tokens, num_heads * value_dim)
    assert b.shape == (num_tokens, num_heads)
    num_steps = num_heads * key_dim if is_by_channel else num_heads
    assert a.shape == (num_tokens, num_steps)
    assert weights.step_bias.shape == (num_steps,)
    read = torch.empty(gate.shape, dtype=torch.float32, device=qkv.device)
    output = torch.empty(gate.shape, dtype=qkv.dtype, device=qkv.device)
    sizes = {"NUM_HEADS": num_heads, "VALUE_DIM": value_dim}
    _advance[(num_rows, num_heads, triton.cdiv(value_dim, _BLOCK_VALUES))](
        qkv,
        a,
        b,
        weights.rates,
        weights.step_bias,
        states.pages,
        states.page_ids,
        states.starts,
        states.query_starts,
        read,
        *(part.stride(0) for part in (qkv, a, b, states.pages)),
        key_dim**-0.5,
        _LEAST_CHUNKED - 1,
        **sizes,
        NUM_KEY_HEADS=num_key_heads,
        KEY_DIM=key_dim,
        BLOCK_KEYS=triton.next_power_of_2(key_dim),
        BLOCK=_BLOCK_VALUES,
        BY_CHANNEL=is_by_channel,
        **launch_options(qkv.device),
        num_warps=1,
    )
    if states.max_queries >= _LEAST_CHUNKED:
        advance_chunks(qkv, a, b, weights, states, read, num_key_heads, _LEAST_CHUNKED, is_by_channel=is_by_channel)
    _gated_norm[(triton.cdiv(num_tokens, _NORM_TOKENS), num_heads)](
        read,
        gate,
        weights.norm,
        output,
        num_tokens,
        gate.stride(0),
        weights.eps,
        **sizes,
        BLOCK=triton.next_power_of_2(value_dim),
        BLOCK_TOKENS=_NORM_TOKENS,
        HAS_SILU=not is_by_channel,
        **launch_options(qkv.device),
        num_warps=4,
    )
    return output
