"""Gated MLPs of many experts as two grouped products: the rows of each expert in tiles, whatever the tokens choose.

The grid has as many tiles as any choice can need, and a tile without rows ends at once. So a step needs no number from
the device, and can be captured as a CUDA graph. A row is multiplied by itself alone, and a token's experts are added in
the order of its choices: its bits depend on the number of tokens, which decides the size of the tiles, but not on what
the other tokens choose.

T = tokens, E = experts, C = experts chosen for each token, I = intermediate size.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.choose_experts import order_by_expert
from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.operators import PLAIN_EXPERTS, ClampedGate, ExpertOptions, TanhGelu

#: Tiles of rows beside each other in the grid: those of one expert read the same weights at about the same time.
_TILES_TOGETHER = 8
_SUM_BLOCK = 1024


@triton.jit
def tile_rows(starts_ptr, tile, num_choices, NUM_EXPERTS: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr):
    """The expert of a tile, its first row in the order by expert, and the end of the expert's rows: 0 of a tile that
    there is not."""
    experts = tl.arange(0, BLOCK_E)
    starts = tl.load(starts_ptr + experts, mask=experts < NUM_EXPERTS, other=num_choices)
    ends = tl.load(starts_ptr + experts + 1, mask=experts < NUM_EXPERTS - 1, other=num_choices)
    count = (ends - starts + BLOCK_M - 1) // BLOCK_M
    end_tiles = tl.cumsum(count, 0)
    expert = tl.sum((end_tiles <= tile).to(tl.int32), 0)
    is_expert = experts == expert
    first = tl.sum(tl.where(is_expert, starts + (tile - end_tiles + count) * BLOCK_M, 0), 0)
    return expert, first, tl.sum(tl.where(is_expert, ends, 0), 0)


@triton.jit
def _load_inputs(pointers, inputs, NUM_INPUTS: tl.constexpr, BLOCK_K: tl.constexpr):
    """A tile [rows, BLOCK_K] of a matrix; zero beyond NUM_INPUTS."""
    if NUM_INPUTS % BLOCK_K == 0:
        return tl.load(pointers)
    return tl.load(pointers, mask=(inputs < NUM_INPUTS)[None, :], other=0.0)


@triton.jit
def gated(gates, ups, ALPHA: tl.constexpr, LIMIT: tl.constexpr, IS_GELU: tl.constexpr):
    """The gate's activation times ups; LIMIT: of a clamped gate, with its ALPHA; None: silu, or gelu if IS_GELU."""
    if IS_GELU:
        # (1 + tanh(x)) / 2 is sigmoid(2 x).
        inner = 0.7978845608028654 * (gates + 0.044715 * gates * gates * gates)
        result = gates * tl.sigmoid(2.0 * inner) * ups
    elif LIMIT is None:
        result = gates * tl.sigmoid(gates) * ups
    else:
        gates = tl.minimum(gates, LIMIT, propagate_nan=tl.PropagateNan.ALL)
        ups = tl.clamp(ups, -LIMIT, LIMIT, propagate_nan=tl.PropagateNan.ALL)
        result = gates * tl.sigmoid(ALPHA * gates) * (ups + 1.0)
    return result


@triton.jit(do_not_specialize=["num_choices"])
def _multiply(
    x_ptr,
    weight_ptr,
    bias_ptr,
    order_ptr,
    starts_ptr,
    output_ptr,
    x_stride,
    num_choices,
    NUM_EXPERTS: tl.constexpr,
    NUM_CHOSEN: tl.constexpr,
    NUM_INPUTS: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    IS_GATED: tl.constexpr,
    ALPHA: tl.constexpr,
    LIMIT: tl.constexpr,
    IS_GELU: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (tiles of rows beside each other, blocks of outputs, groups of such tiles).

    IS_GATED: x [T, inputs] and weight [E, 2 outputs, inputs], gates first -> silu(gate) * up [T * C, outputs] in the
    order by expert. Else x [T * C, inputs] in that order and weight [E, outputs, inputs] -> [T * C, outputs] in the
    order of the choices. bias [E, outputs of the product] or None. LIMIT: of a clamped gate, with its ALPHA; None: the
    gate is silu, or gelu in its tanh form if IS_GELU.
    """
    wait_for_previous(WAITS)
    tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    expert, first_row, end_row = tile_rows(starts_ptr, tile, num_choices, NUM_EXPERTS, BLOCK_E, BLOCK_M)
    if first_row >= end_row:
        return
    # Rows and outputs beyond the end are those at the end once more; they are not stored.
    rows = first_row + tl.arange(0, BLOCK_M)
    is_row = rows < end_row
    rows = tl.minimum(rows, end_row - 1)
    choices = tl.load(order_ptr + rows)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_output = outputs < NUM_OUTPUTS
    weight_rows = tl.minimum(outputs, NUM_OUTPUTS - 1)[:, None] * NUM_INPUTS
    x_rows = choices // NUM_CHOSEN if IS_GATED else rows
    inputs = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + x_rows.to(tl.int64)[:, None] * x_stride + inputs[None, :]
    weight_ptr += expert.to(tl.int64) * ((1 + IS_GATED) * NUM_OUTPUTS * NUM_INPUTS)
    weight_ptrs = weight_ptr + weight_rows + inputs[None, :]
    product = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    ups = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, NUM_INPUTS, BLOCK_K):
        x = _load_inputs(x_ptrs + first, first + inputs, NUM_INPUTS, BLOCK_K)
        weight = _load_inputs(weight_ptrs + first, first + inputs, NUM_INPUTS, BLOCK_K)
        product = tl.dot(x, tl.trans(weight), product, input_precision=PRECISION)
        if IS_GATED:
            up_ptrs = weight_ptrs + NUM_OUTPUTS * NUM_INPUTS + first
            weight = _load_inputs(up_ptrs, first + inputs, NUM_INPUTS, BLOCK_K)
            ups = tl.dot(x, tl.trans(weight), ups, input_precision=PRECISION)
    if bias_ptr is not None:
        bias_ptrs = bias_ptr + expert * ((1 + IS_GATED) * NUM_OUTPUTS) + tl.minimum(outputs, NUM_OUTPUTS - 1)
        product += tl.load(bias_ptrs)[None, :]
        if IS_GATED:
            ups += tl.load(bias_ptrs + NUM_OUTPUTS)[None, :]
    if IS_GATED:
        product = gated(product, ups, ALPHA, LIMIT, IS_GELU)
    output_rows = rows if IS_GATED else choices
    output_ptrs = output_ptr + output_rows.to(tl.int64)[:, None] * NUM_OUTPUTS + outputs[None, :]
    tl.store(output_ptrs, product.to(output_ptr.dtype.element_ty), mask=is_row[:, None] & is_output[None, :])


@triton.jit
def _add(
    outputs_ptr,
    weights_ptr,
    output_ptr,
    NUM_CHOSEN: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (T, blocks of SIZE). outputs [T, C, SIZE], weights [T, C] float32 -> their sum [T, SIZE], in order."""
    wait_for_previous(WAITS)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = columns < SIZE
    total = tl.zeros((BLOCK,), tl.float32)
    for place in tl.static_range(NUM_CHOSEN):
        choice = row * NUM_CHOSEN + place
        output = tl.load(outputs_ptr + choice * SIZE + columns, mask=is_column, other=0.0).to(tl.float32)
        total += output * tl.load(weights_ptr + choice)
    tl.store(output_ptr + row * SIZE + columns, total.to(output_ptr.dtype.element_ty), mask=is_column)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Launch parameters of a grouped product."""

    block_m: int  #: rows of one expert
    block_n: int  #: outputs; of gates and ups as many each
    block_k: int  #: inputs of an iteration
    num_warps: int
    num_stages: int


def grouped_experts(
    x: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    options: ExpertOptions = PLAIN_EXPERTS,
) -> torch.Tensor:
    """The weighted sum of each token's chosen experts, [T, hidden], newly allocated: down(silu(gate(x)) * up(x)).

    x [T, hidden], strided rows; chosen [T, C] int32, different experts of a token; weights [T, C] float32; gate_up
    [E, 2 * I, hidden], gates first, and down [E, hidden, I], of the dtype of x. All sums are in float32. They are
    rounded as silu(gate) * up, or what another gate of the options makes of them, as the output of an expert, and as
    the output of a token.
    """
    num_tokens, hidden = x.shape
    num_experts, _, size = down.shape
    num_chosen = chosen.shape[1]
    assert gate_up.shape == (num_experts, 2 * size, hidden)
    assert down.shape == (num_experts, hidden, size)
    assert gate_up.is_contiguous()
    assert down.is_contiguous()
    assert x.dtype == gate_up.dtype == down.dtype
    check_biases(options, num_experts, hidden, size)

    def multiply(source: torch.Tensor, result: torch.Tensor, ordered: Ordered, *, is_gated: bool) -> None:
        tiles = _tiles_for(num_tokens, num_experts, num_chosen, result.shape[1], x.dtype, is_gated=is_gated)
        _multiply[ordered.grid(tiles.block_m, triton.cdiv(result.shape[1], tiles.block_n))](
            source,
            gate_up if is_gated else down,
            options.gate_up_bias if is_gated else options.down_bias,
            ordered.order,
            ordered.starts,
            result,
            source.stride(0),
            num_tokens * num_chosen,
            **_constants(
                tiles,
                num_experts,
                num_chosen,
                source.shape[1],
                result.shape[1],
                x.dtype,
                options.gate,
                is_gated=is_gated,
            ),
            **launch_options(x.device),
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
        )

    return weighted_sum(x, chosen, weights, num_experts, size, multiply)


def check_biases(options: ExpertOptions, num_experts: int, hidden: int, size: int) -> None:
    """Assert shapes and types of experts' biases."""
    for bias, num_outputs in ((options.gate_up_bias, 2 * size), (options.down_bias, hidden)):
        assert bias is None or (bias.shape == (num_experts, num_outputs) and bias.is_contiguous())
        assert bias is None or bias.dtype == torch.float32


@dataclass(frozen=True, slots=True)
class Ordered:
    """The choices of all tokens in the order of experts."""

    order: torch.Tensor  #: as order_by_expert gives it
    starts: torch.Tensor
    num_tokens: int
    num_experts: int
    num_chosen: int

    def grid(self, block_m: int, num_blocks: int) -> tuple[int, int, int]:
        """(tiles of rows beside each other, blocks of outputs, groups of such tiles), for any choice."""
        count = num_tiles(self.num_tokens, self.num_experts, self.num_chosen, block_m)
        together = min(count, _TILES_TOGETHER)
        return together, num_blocks, triton.cdiv(count, together)


class GroupedProduct(Protocol):
    """One of the two products of all experts."""

    def __call__(self, source: torch.Tensor, result: torch.Tensor, ordered: Ordered, *, is_gated: bool) -> None:
        """is_gated: source [T, hidden] -> result [T * C, size], gates times ups in the order by expert; else source
        [T * C, size] in that order -> result [T * C, hidden] in the order of the choices."""
        ...


def weighted_sum(
    x: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    num_experts: int,
    size: int,
    multiply: GroupedProduct,
) -> torch.Tensor:
    """The weighted sum of each token's chosen experts, [T, hidden], newly allocated. Arguments as of grouped_experts;
    size: of what is between the two products."""
    num_tokens, hidden = x.shape
    num_chosen = chosen.shape[1]
    assert x.stride(1) == 1
    assert chosen.shape == weights.shape == (num_tokens, num_chosen)
    assert chosen.is_contiguous()
    assert weights.is_contiguous()
    assert weights.dtype == torch.float32
    output = torch.empty((num_tokens, hidden), dtype=x.dtype, device=x.device)
    if not num_tokens:
        return output
    ordered = Ordered(*order_by_expert(chosen, num_experts), num_tokens, num_experts, num_chosen)
    activated = torch.empty((num_tokens * num_chosen, size), dtype=x.dtype, device=x.device)
    outputs = torch.empty((num_tokens * num_chosen, hidden), dtype=x.dtype, device=x.device)
    multiply(x, activated, ordered, is_gated=True)
    multiply(activated, outputs, ordered, is_gated=False)
    _add[(num_tokens, triton.cdiv(hidden, _SUM_BLOCK))](
        outputs,
        weights,
        output,
        NUM_CHOSEN=num_chosen,
        SIZE=hidden,
        BLOCK=_SUM_BLOCK,
        **launch_options(x.device),
        num_warps=4,
    )
    return output


def num_tiles(num_tokens: int, num_experts: int, num_chosen: int, block_m: int) -> int:
    """The most tiles that any choice needs. An expert with n rows, of T at most, needs 1 + (n - 1) // block_m."""
    num_choices = num_tokens * num_chosen
    num_used = min(num_choices, num_experts)
    return num_used + min((num_choices - num_used) // block_m, num_used * ((num_tokens - 1) // block_m))


def _tiles_for(
    num_tokens: int, num_experts: int, num_chosen: int, num_outputs: int, dtype: torch.dtype, *, is_gated: bool
) -> _Tiles:
    """Tiles by formula, from the average number of rows of an expert; they are not measured yet."""
    if dtype == torch.float32:
        return _Tiles(16, 32, 32, 4, 2)  # no tensor cores: registers hold all three matrices
    num_rows = num_tokens * num_chosen / num_experts
    if num_rows <= 8:
        # The weights decide the time. Few programs would leave multiprocessors without one: 8 experts of Qwen3-30B-A3B
        # have 96 blocks of 64 outputs.
        return _Tiles(16, 64 if num_outputs > 1024 or not is_gated else 32, 64, 4, 4)
    if num_rows <= 64:
        return _Tiles(64, 64, 64, 4, 3)
    return _Tiles(128, 64 if is_gated else 128, 64, 8, 3)


def _constants(
    tiles: _Tiles,
    num_experts: int,
    num_chosen: int,
    num_inputs: int,
    num_outputs: int,
    dtype: torch.dtype,
    gate: ClampedGate | TanhGelu | None,
    *,
    is_gated: bool,
) -> dict[str, object]:
    clamped = gate if is_gated and isinstance(gate, ClampedGate) else None
    return {
        "NUM_EXPERTS": num_experts,
        "NUM_CHOSEN": num_chosen,
        "NUM_INPUTS": num_inputs,
        "NUM_OUTPUTS": num_outputs,
        "IS_GATED": is_gated,
        "ALPHA": None if clamped is None else clamped.alpha,
        "LIMIT": None if clamped is None else clamped.limit,
        "IS_GELU": is_gated and isinstance(gate, TanhGelu),
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
        "BLOCK_E": triton.next_power_of_2(num_experts),
        "BLOCK_M": tiles.block_m,
        "BLOCK_N": tiles.block_n,
        "BLOCK_K": tiles.block_k,
    }
