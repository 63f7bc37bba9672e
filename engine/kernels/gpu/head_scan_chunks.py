"""The recurrence of Mamba-2 over prompts, in chunks of tokens (Dao and Gu 2024, section 6) on states in pages: products
of matrices inside a chunk, and the state from chunk to chunk.

One program per sequence, head and block of channels. A result depends on its own sequence alone. Where a prompt is
divided into steps decides where its chunks begin, and so the last bits.

T = tokens of the step, B = sequences, H = heads, P = channels of a head, G = groups, S = numbers of state per channel,
C = tokens of a chunk.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.mamba import softplus
from engine.kernels.state_kernels import ScanHeads, StatesInPlace

_CHUNK = 32
_BLOCK_CHANNELS = 32


@triton.jit
def _advance_chunks(
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
    least_tokens,
    NUM_CHANNELS: tl.constexpr,
    NUM_STATES: tl.constexpr,
    HEADS_OF_GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_STATES: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (B, H, blocks of P). Writes output [T, H P] and updates the states [H, P, S] in place, of sequences of
    least_tokens tokens or more."""
    wait_for_previous(WAITS)
    row, head = tl.program_id(0), tl.program_id(1)
    page = tl.load(page_ids_ptr + row)
    first = tl.load(query_starts_ptr + row)
    last = tl.load(query_starts_ptr + row + 1)
    if (page < 0) | (last - first < least_tokens):
        return
    places = tl.arange(0, CHUNK)
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.arange(0, BLOCK_STATES)
    is_channel, is_number = channels < NUM_CHANNELS, numbers < NUM_STATES
    state_ptr = states_ptr + page * page_stride + (head * NUM_CHANNELS + channels[None, :]) * NUM_STATES
    state_ptr += numbers[:, None]
    is_state = is_number[:, None] & is_channel[None, :]
    state = tl.load(state_ptr, mask=is_state & (tl.load(starts_ptr + row) > 0), other=0.0)  # [S, P]
    rate, skip, dt_bias = tl.load(a_ptr + head), tl.load(d_ptr + head), tl.load(dt_bias_ptr + head)
    x_ptr += head * NUM_CHANNELS + channels[None, :]
    output_ptr += head * NUM_CHANNELS + channels[None, :]
    group_numbers = head // HEADS_OF_GROUP * NUM_STATES + numbers[None, :]
    for start in range(first, last, CHUNK):
        tokens = (start + places).to(tl.int64)
        is_token = tokens < last
        is_here = is_token[:, None] & is_channel[None, :]
        is_factor = is_token[:, None] & is_number[None, :]
        dt = tl.load(dt_ptr + head + tokens * dt_stride, mask=is_token, other=0.0).to(tl.float32)
        steps = tl.minimum(tl.maximum(softplus(dt + dt_bias), least_step), largest_step)
        steps = tl.where(is_token, steps, 0.0)
        decays = tl.cumsum(steps * rate, axis=0)  # logarithms, from the chunk's beginning
        whole = tl.sum(steps * rate, axis=0)
        b = tl.load(b_ptr + group_numbers + tokens[:, None] * b_stride, mask=is_factor, other=0.0).to(tl.float32)
        c = tl.load(c_ptr + group_numbers + tokens[:, None] * c_stride, mask=is_factor, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + tokens[:, None] * x_stride, mask=is_here, other=0.0).to(tl.float32)
        is_seen = places[:, None] >= places[None, :]
        since = tl.exp(tl.where(is_seen, decays[:, None] - decays[None, :], float("-inf")))
        weights = tl.dot(c, tl.trans(b), input_precision=PRECISION) * since * steps[None, :]
        y = skip * x + tl.exp(decays)[:, None] * tl.dot(c, state, input_precision=PRECISION)
        y = tl.dot(weights, x, y, input_precision=PRECISION)
        tl.store(output_ptr + tokens[:, None] * output_stride, y.to(output_ptr.dtype.element_ty), mask=is_here)
        left = b * (tl.exp(whole - decays) * steps)[:, None]
        state = tl.dot(tl.trans(left), x, tl.exp(whole) * state, input_precision=PRECISION)
    tl.store(state_ptr, state, mask=is_state)


def advance_chunks(
    x: torch.Tensor,
    dt: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    heads: ScanHeads,
    states: StatesInPlace,
    output: torch.Tensor,
    least_tokens: int,
) -> None:
    """Writes the rows of output [T, H P] of the sequences that have least_tokens tokens or more, and updates their
    states' pages [H, P, S]. Tensors as of StateKernels.head_scan; the caller has checked them."""
    num_heads, num_channels, num_states = states.pages.shape[1:]
    _advance_chunks[(len(states.page_ids), num_heads, triton.cdiv(num_channels, _BLOCK_CHANNELS))](
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
        least_tokens,
        NUM_CHANNELS=num_channels,
        NUM_STATES=num_states,
        HEADS_OF_GROUP=num_heads * num_states // b.shape[1],
        BLOCK=_BLOCK_CHANNELS,
        BLOCK_STATES=max(triton.next_power_of_2(num_states), 16),
        CHUNK=_CHUNK,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
        **launch_options(x.device),
        num_warps=8,
        num_stages=2,
    )
