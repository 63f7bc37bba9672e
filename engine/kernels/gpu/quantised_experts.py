"""Gated MLPs of many experts with quantised weights: as grouped_experts, with tiles of weights decoded in registers as
quantised_product does it. T = tokens, E = experts, C = experts chosen for each token, I = intermediate size.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.grouped_experts import Ordered, check_biases, gated, tile_rows, weighted_sum
from engine.kernels.gpu.packed_codes import CodeForm, PackedCodes, group_scales, packed, weights_of
from engine.kernels.operators import PLAIN_EXPERTS, ClampedGate, ExpertOptions, TanhGelu
from engine.kernels.quantised import QuantisedMatrix, QuantisedStack

_SLOTS_OF_BYTES = 4
_FEWER_WORDS = 16


@triton.jit(do_not_specialize=["num_choices"])
def _multiply(
    x_ptr,
    words_ptr,
    scales_ptr,
    factors_ptr,
    bias_ptr,
    order_ptr,
    starts_ptr,
    output_ptr,
    x_stride,
    num_choices,
    NUM_EXPERTS: tl.constexpr,
    NUM_CHOSEN: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    IS_GATED: tl.constexpr,
    ALPHA: tl.constexpr,
    LIMIT: tl.constexpr,
    IS_GELU: tl.constexpr,
    KIND: tl.constexpr,
    SCALES: tl.constexpr,
    ZERO: tl.constexpr,
    HAS_SMALL: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    WORDS: tl.constexpr,
    READ: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid and rows as in grouped_experts; words and scales as PackedExperts has them, of NUM_OUTPUTS outputs, or twice
    as many, gates first, where IS_GATED. Sums are [BLOCK_N, BLOCK_M], stored transposed."""
    wait_for_previous(WAITS)
    tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    expert, first_row, end_row = tile_rows(starts_ptr, tile, num_choices, NUM_EXPERTS, BLOCK_E, BLOCK_M)
    if first_row >= end_row:
        return
    SLOTS: tl.constexpr = 8 if (KIND == 0 or KIND == 3) else 4
    BLOCK_K: tl.constexpr = SLOTS * WORDS
    NUM_BLOCKS: tl.constexpr = (SIZE + BLOCK_K - 1) // BLOCK_K
    NUM_READS: tl.constexpr = WORDS // READ
    NUM_ROWS: tl.constexpr = (1 + IS_GATED) * NUM_OUTPUTS
    IN_WORD: tl.constexpr = 4 if SCALES == 2 else 1
    NUM_SCALES: tl.constexpr = (SIZE // GROUP + IN_WORD - 1) // IN_WORD
    SLOTS_OF_GROUP: tl.constexpr = GROUP // WORDS if GROUP % WORDS == 0 and GROUP < BLOCK_K else 1
    IS_ONE_GROUP: tl.constexpr = GROUP % BLOCK_K == 0 or GROUP == SIZE
    rows = first_row + tl.arange(0, BLOCK_M)
    is_row = rows < end_row
    rows = tl.minimum(rows, end_row - 1)
    choices = tl.load(order_ptr + rows)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    weight_rows = tl.minimum(outputs, NUM_OUTPUTS - 1)
    x_rows = choices // NUM_CHOSEN if IS_GATED else rows
    x_rows_ptr = x_ptr + x_rows.to(tl.int64)[:, None] * x_stride
    scales_ptr += expert.to(tl.int64) * (NUM_SCALES * NUM_ROWS)
    words_ptr += expert.to(tl.int64) * (NUM_ROWS * NUM_BLOCKS * WORDS)
    words_rows_ptr = words_ptr + weight_rows.to(tl.int64)[:, None] * (NUM_BLOCKS * WORDS)
    product = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    ups = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for step in range(NUM_BLOCKS * NUM_READS):
        block = step // NUM_READS
        offset = step % NUM_READS * READ
        words_ptrs = words_rows_ptr + block * WORDS + offset + tl.arange(0, READ)[None, :]
        words = tl.load(words_ptrs)
        if IS_GATED:
            up_words = tl.load(words_ptrs + NUM_OUTPUTS * NUM_BLOCKS * WORDS)
        for slot in tl.static_range(SLOTS):
            first = block * BLOCK_K + slot * WORDS + offset
            if slot == 0 or (not IS_ONE_GROUP and slot % SLOTS_OF_GROUP == 0):
                scale, addend = group_scales(
                    scales_ptr, weight_rows, first, slot * WORDS, NUM_ROWS, READ,
                    KIND, SCALES, ZERO, HAS_SMALL, GROUP, SIZE,
                )  # fmt: skip
                if IS_GATED:
                    up_scale, up_addend = group_scales(
                        scales_ptr + NUM_OUTPUTS, weight_rows, first, slot * WORDS, NUM_ROWS, READ,
                        KIND, SCALES, ZERO, HAS_SMALL, GROUP, SIZE,
                    )  # fmt: skip
            inputs = first + tl.arange(0, READ)
            # Codes behind the inputs may be any weights; x is zero there.
            x = tl.trans(tl.load(x_rows_ptr + inputs[None, :], mask=(inputs < SIZE)[None, :], other=0.0))
            weights = weights_of(words, scale, addend, slot, KIND, HAS_SMALL).to(x_ptr.dtype.element_ty)
            product = tl.dot(weights, x, product, input_precision=PRECISION)
            if IS_GATED:
                weights = weights_of(up_words, up_scale, up_addend, slot, KIND, HAS_SMALL).to(x_ptr.dtype.element_ty)
                ups = tl.dot(weights, x, ups, input_precision=PRECISION)
    if SCALES == 1:
        factor = tl.load(factors_ptr + expert)
        product *= factor
        ups *= factor
    if bias_ptr is not None:
        bias_ptrs = bias_ptr + expert * NUM_ROWS + weight_rows
        product += tl.load(bias_ptrs)[:, None]
        if IS_GATED:
            ups += tl.load(bias_ptrs + NUM_OUTPUTS)[:, None]
    if IS_GATED:
        product = gated(product, ups, ALPHA, LIMIT, IS_GELU)
    output_rows = rows if IS_GATED else choices
    output_ptrs = output_ptr + output_rows.to(tl.int64)[None, :] * NUM_OUTPUTS + outputs[:, None]
    is_stored = is_row[None, :] & (outputs < NUM_OUTPUTS)[:, None]
    tl.store(output_ptrs, product.to(output_ptr.dtype.element_ty), mask=is_stored)


@dataclass(frozen=True, slots=True)
class PackedExperts:
    """Packed matrices of the same form, one for each expert."""

    form: CodeForm
    words: torch.Tensor  #: int32 [E, O, blocks * WORDS]
    scales: torch.Tensor  #: int32 [E, G, O], or [E, G / 4, O] of exponents
    factors: torch.Tensor  #: float32 [E], as PackedCodes.factor
    dtype: torch.dtype

    @classmethod
    def of(cls, stack: QuantisedStack) -> "PackedExperts | None":
        """Decodes and packs one expert after another; None: kernels cannot decode them, or their forms differ."""
        alike = _packed_alike(stack, lambda matrix: matrix)
        return _packed_alike(stack, _with_zeros) if alike is None else alike

    @property
    def num_outputs(self) -> int:
        """O."""
        return self.words.shape[1]


def _with_zeros(matrix: QuantisedMatrix) -> QuantisedMatrix:
    """The same with a zero point for each group: matrices of one stack may have one for all, and several."""
    if isinstance(matrix.zeros, torch.Tensor) or matrix.book is not None:
        return matrix
    return replace(matrix, zeros=torch.full_like(matrix.scales, float(matrix.zeros)))


def _packed_alike(stack: QuantisedStack, changed: Callable[[QuantisedMatrix], QuantisedMatrix]) -> PackedExperts | None:
    result: PackedExperts | None = None
    factors: list[float] = []
    for index in range(len(stack)):
        codes = packed(changed(stack[index]))
        if codes is None or codes.order is not None:
            return None
        if result is None:
            result = _room_for(len(stack), codes)
        form = replace(codes.form, has_small_scales=result.form.has_small_scales)
        if form != result.form or codes.words.shape != result.words.shape[1:]:
            return None
        has_small = result.form.has_small_scales and codes.form.has_small_scales
        result = replace(result, form=replace(form, has_small_scales=has_small))
        result.words[index], result.scales[index] = codes.words, codes.scales
        factors.append(codes.factor)
    if result is not None:
        result.factors.copy_(torch.tensor(factors))
    return result


def _room_for(count: int, codes: PackedCodes) -> PackedExperts:
    return PackedExperts(
        codes.form,
        codes.words.new_empty((count, *codes.words.shape)),
        codes.scales.new_empty((count, *codes.scales.shape)),
        torch.empty(count, dtype=torch.float32, device=codes.words.device),
        codes.dtype,
    )


@dataclass(frozen=True, slots=True)
class ExpertTiles:
    """Launch parameters of a grouped product."""

    block_m: int  #: rows of one expert
    block_n: int  #: outputs; of gates and ups as many each
    read: int  #: words of a row that are read at once
    num_warps: int
    num_stages: int


def quantised_experts(
    x: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    gate_up: PackedExperts,
    down: PackedExperts,
    options: ExpertOptions = PLAIN_EXPERTS,
) -> torch.Tensor:
    """As grouped_experts, with gate_up of [E, 2 * I, hidden] and down of [E, hidden, I], of the dtype of x."""
    (num_tokens, hidden), num_chosen = x.shape, chosen.shape[1]
    num_experts, size = len(down.words), down.form.size
    assert gate_up.form.size == down.num_outputs == hidden
    assert gate_up.num_outputs == 2 * size
    assert x.dtype == gate_up.dtype == down.dtype
    check_biases(options, num_experts, hidden, size)

    def multiply(source: torch.Tensor, result: torch.Tensor, ordered: Ordered, *, is_gated: bool) -> None:
        matrices, num_outputs = gate_up if is_gated else down, result.shape[1]
        tiles = tiles_for(num_tokens, num_experts, num_chosen, matrices.form, num_outputs, x.dtype)
        _multiply[ordered.grid(tiles.block_m, triton.cdiv(num_outputs, tiles.block_n))](
            source,
            matrices.words,
            matrices.scales,
            matrices.factors,
            options.gate_up_bias if is_gated else options.down_bias,
            ordered.order,
            ordered.starts,
            result,
            source.stride(0),
            num_tokens * num_chosen,
            **constants(
                tiles, matrices.form, num_experts, num_chosen, num_outputs, x.dtype, options.gate, is_gated=is_gated
            ),
            **launch_options(x.device),
            num_warps=tiles.num_warps,
            num_stages=tiles.num_stages,
        )

    return weighted_sum(x, chosen, weights, num_experts, size, multiply)


def tiles_for(
    num_tokens: int, num_experts: int, num_chosen: int, form: CodeForm, num_outputs: int, dtype: torch.dtype
) -> ExpertTiles:
    """Tiles by formula, from the average number of rows of an expert; they are not measured yet."""
    if dtype == torch.float32:
        return ExpertTiles(16, 32, form.words, 4, 2)  # no tensor cores: registers hold all three matrices
    num_rows = num_tokens * num_chosen / num_experts
    read, num_stages = form.words, 4
    if form.group % read or (num_rows > 8 and form.slots != _SLOTS_OF_BYTES) or num_rows > 64:
        read = _FEWER_WORDS
    if form.group % read:
        num_stages = 2  # scales for each input take as much shared memory as codes
    if num_rows <= 8:
        return ExpertTiles(16, 64, read, 4, num_stages)
    if num_rows <= 64:
        return ExpertTiles(64, 64, read, 4, 2)
    return ExpertTiles(128, 64, read, 8, 2)


def constants(
    tiles: ExpertTiles,
    form: CodeForm,
    num_experts: int,
    num_chosen: int,
    num_outputs: int,
    dtype: torch.dtype,
    gate: ClampedGate | TanhGelu | None,
    *,
    is_gated: bool,
) -> dict[str, object]:
    """Constexpr arguments of the kernel."""
    clamped = gate if is_gated and isinstance(gate, ClampedGate) else None
    return form.constants() | {
        "NUM_EXPERTS": num_experts,
        "NUM_CHOSEN": num_chosen,
        "NUM_OUTPUTS": num_outputs,
        "IS_GATED": is_gated,
        "ALPHA": None if clamped is None else clamped.alpha,
        "LIMIT": None if clamped is None else clamped.limit,
        "IS_GELU": is_gated and isinstance(gate, TanhGelu),
        "READ": tiles.read,
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
        "BLOCK_E": triton.next_power_of_2(num_experts),
        "BLOCK_M": tiles.block_m,
        "BLOCK_N": tiles.block_n,
    }
