"""The gated delta rule over prompts, in chunks of tokens (Yang et al. 2024, section 3.3) on states in pages: products
of matrices instead of a loop over tokens.

With g the decay since the chunk's beginning and S the state there, a token adds k u^T to the state, and the u of a
chunk solve (1 + A) U = beta (V - g K S), where A(t, j) = beta(t) g(t) / g(j) k(t) k(j) for j < t. What does not depend
on the state is computed for all chunks at once: the inverses of 1 + A, and how much of each u a query reads. A second
kernel goes from chunk to chunk with a block of the state's channels in registers.

With a decay for every channel of a key (Kimi delta attention, arXiv 2510.26692) g is a vector, and A(t, j) = beta(t)
sum over channels of k(t) k(j) g(t) / g(j). A quotient of two factors would leave float32's range where channels decay
fast. So scores of the chunk's second half with its first one are products of matrices relative to the decay at their
border, both factors of which are at most 1; those within a half are computed token by token from differences of
logarithms.

A result depends on its own sequence alone. Where a prompt is divided into steps decides where its chunks begin, and so
the last bits.

T = tokens of the step, B = sequences, H = value heads, G = key heads, D = channels of a key, V = of a value, C = tokens
of a chunk.
"""

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.mamba import softplus
from engine.kernels.gpu.owner_of_tile import owner_of_tile
from engine.kernels.state_kernels import DeltaWeights, StatesInPlace

#: C. The inverse takes C steps, one after the other; longer chunks have fewer products.
_CHUNK = 32
#: Channels of a state in a program; with a decay for every channel twice as many would spill registers.
_BLOCK_VALUES = 32
_BLOCK_VALUES_BY_CHANNEL = 16
#: Warps of `_prepare` with a decay for every channel: keys, queries and decays are in registers at once.
_WARPS_BY_CHANNEL = 8
LENGTH_EPS = tl.constexpr(1e-6)


@triton.jit
def _units(pointers, is_row):
    """[C, D] float32: rows divided by their lengths; zeros for those of no token."""
    rows = tl.load(pointers, mask=is_row, other=0.0).to(tl.float32)
    return rows * tl.rsqrt(tl.sum(rows * rows, axis=1, keep_dims=True) + LENGTH_EPS)


@triton.jit
def _decays(a_ptr, a_stride, rate, step_bias, tokens, is_token):
    """[C] float32: logarithms of the decay from the chunk's beginning to each token, its own included."""
    a = tl.load(a_ptr + tokens * a_stride, mask=is_token, other=0.0).to(tl.float32)
    return tl.cumsum(tl.where(is_token, rate * softplus(a + step_bias), 0.0), axis=0)


@triton.jit
def _channel_decays(a_ptr, a_stride, rate, step_bias, tokens, is_key):
    """[C, D] float32: the same for every channel of a key. Below -104 exp is 0 in float32: larger sums would only
    take bits from the differences between later tokens."""
    a = tl.load(a_ptr + tokens[:, None] * a_stride, mask=is_key, other=0.0).to(tl.float32)
    return tl.cumsum(tl.where(is_key, tl.maximum(rate * softplus(a + step_bias[None, :]), -104.0), 0.0), axis=0)


@triton.jit
def _row(matrix, places, place):
    """[D]: row `place` of a matrix [C, D]."""
    return tl.sum(tl.where((places == place)[:, None], matrix, 0.0), axis=0)


@triton.jit
def _channel_scores(keys, queries, decays, places, CHUNK: tl.constexpr, PRECISION: tl.constexpr):
    """Two [C, C] float32: products of keys, and of queries, with the keys of earlier tokens and of their own, decayed
    since, channel by channel; numbers behind a token are 0."""
    HALF: tl.constexpr = CHUNK // 2
    is_second = (places >= HALF)[:, None]
    to_border = _row(decays, places, HALF - 1)[None, :] - decays
    since = tl.exp(tl.where(is_second, -to_border, float("-inf")))
    border_keys = tl.trans(keys * tl.exp(tl.where(is_second, float("-inf"), to_border)))
    of_keys = tl.dot(keys * since, border_keys, input_precision=PRECISION)
    of_queries = tl.dot(queries * since, border_keys, input_precision=PRECISION)
    for i in range(HALF):
        key = tl.where(is_second, _row(keys, places, HALF + i)[None, :], _row(keys, places, i)[None, :])
        decay = tl.where(is_second, _row(decays, places, HALF + i)[None, :], _row(decays, places, i)[None, :])
        is_seen = (places % HALF >= i)[:, None]
        key *= tl.exp(tl.where(is_seen, decays - decay, float("-inf")))
        is_column = places[None, :] == (places // HALF * HALF + i)[:, None]
        of_keys += tl.where(is_column, tl.sum(keys * key, axis=1)[:, None], 0.0)
        of_queries += tl.where(is_column, tl.sum(queries * key, axis=1)[:, None], 0.0)
    return of_keys, of_queries


@triton.jit
def _since(decays, is_seen):
    """[C, C]: the decay from the token of a column to that of a row, 0 where it is not seen."""
    return tl.exp(tl.where(is_seen, decays[:, None] - decays[None, :], float("-inf")))


@triton.jit(do_not_specialize=["num_rows"])  # it changes from step to step
def _prepare(
    qkv_ptr,
    a_ptr,
    b_ptr,
    rates_ptr,
    step_bias_ptr,
    page_ids_ptr,
    query_starts_ptr,
    inverses_ptr,
    weights_ptr,
    decays_ptr,
    qkv_stride,
    a_stride,
    b_stride,
    scale,
    num_rows,
    least_tokens,
    NUM_HEADS: tl.constexpr,
    NUM_KEY_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
    BY_CHANNEL: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (chunks, H). Writes the inverses of 1 + A, times beta of their columns, and the weights with which queries
    read each u: both [chunks, H, C, C] float32; BY_CHANNEL also the decays, [T, H, D] float32. Sequences of fewer than
    least_tokens tokens have none."""
    wait_for_previous(WAITS)
    chunk, head = tl.program_id(0), tl.program_id(1)
    row = owner_of_tile(query_starts_ptr, num_rows, chunk, CHUNK)
    first = tl.load(query_starts_ptr + row)
    last = tl.load(query_starts_ptr + row + 1)
    start = first + (chunk - (first // CHUNK + row)) * CHUNK
    if (start >= last) | (last - first < least_tokens) | (tl.load(page_ids_ptr + row) < 0):
        return
    places = tl.arange(0, CHUNK)
    tokens = (start + places).to(tl.int64)
    is_token = tokens < last
    channels = tl.arange(0, BLOCK_KEYS)
    is_key = is_token[:, None] & (channels < KEY_DIM)[None, :]
    key_head = head // (NUM_HEADS // NUM_KEY_HEADS)
    queries_ptr = qkv_ptr + key_head * KEY_DIM + tokens[:, None] * qkv_stride + channels[None, :]
    keys = _units(queries_ptr + NUM_KEY_HEADS * KEY_DIM, is_key)
    rate = tl.load(rates_ptr + head)
    strength = tl.load(b_ptr + head + tokens * b_stride, mask=is_token, other=0.0).to(tl.float32)
    strength = tl.where(is_token, tl.sigmoid(strength), 0.0)
    at = (chunk * NUM_HEADS + head).to(tl.int64) * CHUNK * CHUNK + places[:, None] * CHUNK + places[None, :]
    is_earlier = places[:, None] > places[None, :]
    if BY_CHANNEL:
        steps = head * KEY_DIM + channels
        step_bias = tl.load(step_bias_ptr + steps, mask=channels < KEY_DIM, other=0.0)
        decays = _channel_decays(a_ptr + steps[None, :], a_stride, rate, step_bias, tokens, is_key)
        tl.store(decays_ptr + tokens[:, None] * (NUM_HEADS * KEY_DIM) + steps[None, :], decays, mask=is_key)
        queries = _units(queries_ptr, is_key) * scale
        products, weights = _channel_scores(keys, queries, decays, places, CHUNK, PRECISION)
        tl.store(weights_ptr + at, weights)
        matrix = tl.where(is_earlier, products, 0.0) * strength[:, None]
    else:
        decays = _decays(a_ptr + head, a_stride, rate, tl.load(step_bias_ptr + head), tokens, is_token)
        products = tl.dot(keys, tl.trans(keys), input_precision=PRECISION)
        matrix = products * _since(decays, is_earlier) * strength[:, None]
    # Row by row: the inverse's row t is that of 1, less the rows before it times A(t, j).
    inverse = tl.where(places[:, None] == places[None, :], 1.0, 0.0)
    for t in range(1, CHUNK):
        is_row = places == t
        factors = tl.sum(tl.where(is_row[:, None], matrix, 0.0), axis=0)  # A(t, .)
        inverse -= tl.where(is_row[:, None], tl.sum(factors[:, None] * inverse, axis=0)[None, :], 0.0)
    tl.store(inverses_ptr + at, inverse * strength[None, :])
    if not BY_CHANNEL:
        queries = _units(queries_ptr, is_key) * scale
        weights = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
        tl.store(weights_ptr + at, weights * _since(decays, places[:, None] >= places[None, :]))


@triton.jit
def _advance_chunks(
    qkv_ptr,
    a_ptr,
    rates_ptr,
    step_bias_ptr,
    states_ptr,
    page_ids_ptr,
    starts_ptr,
    query_starts_ptr,
    inverses_ptr,
    weights_ptr,
    decays_ptr,
    read_ptr,
    qkv_stride,
    a_stride,
    page_stride,
    scale,
    least_tokens,
    NUM_HEADS: tl.constexpr,
    NUM_KEY_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
    BY_CHANNEL: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (B, H, blocks of V). Writes what the queries read, [T, H, V] float32, and updates the states [H, D, V] in
    place, of the sequences that have inverses."""
    wait_for_previous(WAITS)
    row, head = tl.program_id(0), tl.program_id(1)
    page = tl.load(page_ids_ptr + row)
    first = tl.load(query_starts_ptr + row)
    last = tl.load(query_starts_ptr + row + 1)
    if (page < 0) | (last - first < least_tokens):
        return
    places = tl.arange(0, CHUNK)
    channels = tl.arange(0, BLOCK_KEYS)
    values = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    is_channel, is_value = channels < KEY_DIM, values < VALUE_DIM
    state_ptr = states_ptr + page * page_stride + (head * KEY_DIM + channels[:, None]) * VALUE_DIM + values[None, :]
    is_state = is_channel[:, None] & is_value[None, :]
    state = tl.load(state_ptr, mask=is_state & (tl.load(starts_ptr + row) > 0), other=0.0)
    queries_ptr = qkv_ptr + head // (NUM_HEADS // NUM_KEY_HEADS) * KEY_DIM + channels[None, :]
    values_ptr = qkv_ptr + 2 * NUM_KEY_HEADS * KEY_DIM + head * VALUE_DIM + values[None, :]
    read_ptr += head * VALUE_DIM + values[None, :]
    if BY_CHANNEL:
        decays_ptr += head * KEY_DIM + channels[None, :]
    else:
        rate, step_bias = tl.load(rates_ptr + head), tl.load(step_bias_ptr + head)
    chunk = (first // CHUNK + row).to(tl.int64)
    matrix_at = (chunk * NUM_HEADS + head) * CHUNK * CHUNK + places[:, None] * CHUNK + places[None, :]
    for start in range(first, last, CHUNK):
        tokens = (start + places).to(tl.int64)
        is_token = tokens < last
        is_key = is_token[:, None] & is_channel[None, :]
        is_here = is_token[:, None] & is_value[None, :]
        at = tokens[:, None] * qkv_stride
        query = _units(queries_ptr + at, is_key) * scale
        key = _units(queries_ptr + NUM_KEY_HEADS * KEY_DIM + at, is_key)
        value = tl.load(values_ptr + at, mask=is_here, other=0.0).to(tl.float32)
        if BY_CHANNEL:
            decays = tl.load(decays_ptr + tokens[:, None] * (NUM_HEADS * KEY_DIM), mask=is_key, other=0.0)
            whole = tl.min(decays, axis=0)  # sums of negative numbers: the last token's
            decay = tl.exp(decays)
            read = tl.dot(query * decay, state, input_precision=PRECISION)
            wanted = value - tl.dot(key * decay, state, input_precision=PRECISION)
            left = key * tl.exp(whole[None, :] - decays)
            state *= tl.exp(whole)[:, None]
        else:
            decays = _decays(a_ptr + head, a_stride, rate, step_bias, tokens, is_token)
            whole = tl.sum(tl.where(places == CHUNK - 1, decays, 0.0), axis=0)
            decay = tl.exp(decays)[:, None]
            read = decay * tl.dot(query, state, input_precision=PRECISION)
            wanted = value - decay * tl.dot(key, state, input_precision=PRECISION)
            left = key * tl.exp(whole - decays)[:, None]
            state *= tl.exp(whole)
        added = tl.dot(tl.load(inverses_ptr + matrix_at), wanted, input_precision=PRECISION)
        read = tl.dot(tl.load(weights_ptr + matrix_at), added, read, input_precision=PRECISION)
        tl.store(read_ptr + tokens[:, None] * (NUM_HEADS * VALUE_DIM), read, mask=is_here)
        state = tl.dot(tl.trans(left), added, state, input_precision=PRECISION)
        matrix_at += NUM_HEADS * CHUNK * CHUNK
    tl.store(state_ptr, state, mask=is_state)


def advance_chunks(
    qkv: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    weights: DeltaWeights,
    states: StatesInPlace,
    read: torch.Tensor,
    num_key_heads: int,
    least_tokens: int,
    *,
    is_by_channel: bool,
) -> None:
    """Writes the rows of read [T, H V] float32 of the sequences that have least_tokens tokens or more, and updates
    their states' pages [H, D, V]. Tensors as of StateKernels.gated_delta, or channel_delta if is_by_channel; the caller
    has checked them."""
    num_heads, key_dim, value_dim = states.pages.shape[1:]
    num_rows = len(states.page_ids)
    num_chunks = len(qkv) // _CHUNK + num_rows
    shape = (2, num_chunks, num_heads, _CHUNK, _CHUNK)
    inverses, factors = torch.empty(shape, dtype=torch.float32, device=qkv.device)
    decays = None
    if is_by_channel:
        decays = torch.empty((len(qkv), num_heads, key_dim), dtype=torch.float32, device=qkv.device)
    sizes = {"NUM_HEADS": num_heads, "NUM_KEY_HEADS": num_key_heads, "KEY_DIM": key_dim, "CHUNK": _CHUNK}
    sizes |= {"BLOCK_KEYS": max(triton.next_power_of_2(key_dim), 16), "BY_CHANNEL": is_by_channel}
    precision = "ieee" if qkv.dtype == torch.float32 else "tf32"
    _prepare[(num_chunks, num_heads)](
        qkv,
        a,
        b,
        weights.rates,
        weights.step_bias,
        states.page_ids,
        states.query_starts,
        inverses,
        factors,
        decays,
        *(part.stride(0) for part in (qkv, a, b)),
        key_dim**-0.5,
        num_rows,
        least_tokens,
        **sizes,
        PRECISION=precision,
        **launch_options(qkv.device),
        num_warps=_WARPS_BY_CHANNEL if is_by_channel else 4,
    )
    block = _BLOCK_VALUES_BY_CHANNEL if is_by_channel else _BLOCK_VALUES
    _advance_chunks[(num_rows, num_heads, triton.cdiv(value_dim, block))](
        qkv,
        a,
        weights.rates,
        weights.step_bias,
        states.pages,
        states.page_ids,
        states.starts,
        states.query_starts,
        inverses,
        factors,
        decays,
        read,
        *(part.stride(0) for part in (qkv, a, states.pages)),
        key_dim**-0.5,
        least_tokens,
        **sizes,
        VALUE_DIM=value_dim,
        BLOCK=block,
        PRECISION=precision,
        **launch_options(qkv.device),
        num_warps=8,
        num_stages=2,
    )
