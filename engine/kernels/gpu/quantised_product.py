"""Matrix products of rows with quantised weights: codes are read packed and become weights in registers, the operand of
the tensor cores that may come from there.

A program multiplies a tile of the weights' rows with a tile of the rows of x. Few rows are bound by reading the
weights; as in skinny_product inputs are then divided among programs, and the norm before, activation and addition
behind the product are part of it, the norm up to 64 rows. With more rows weights are decoded once for each tile of
rows. A row's bits depend on the number of rows, through the size of tiles, and not on other rows. R = rows.
"""

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous
from engine.kernels.gpu.packed_codes import CodeForm, PackedCodes, group_scales, weights_of
from engine.kernels.gpu.skinny_product import (
    MAX_ROWS,
    MAX_SQUARES,
    ROW_TILES,
    SQUARES_STRIDE,
    Activation,
    InputNorm,
    ProductWorkspace,
    finish,
    inverse_rms,
    most_splits,
    store_partial,
    sum_of_partials,
)

_LARGEST_TILE_ROWS = 128
_MOST_ROWS_OF_FOUR_WARPS = 64
_FEWER_WORDS = 16
_SLOTS_OF_BYTES = 4
_FLOAT32_BYTES = 4


@triton.jit(do_not_specialize=["num_rows", "factor"])
def _multiply(
    x_ptr,
    words_ptr,
    scales_ptr,
    bias_ptr,
    norm_ptr,
    squares_ptr,
    output_ptr,
    output_squares_ptr,
    partials_ptr,
    counters_ptr,
    x_stride,
    output_stride,
    num_rows,
    factor,
    eps,
    SIZE: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ADDS: tl.constexpr,
    NUM_SQUARES: tl.constexpr,
    BLOCK_SQUARES: tl.constexpr,
    SCALES_FIRST: tl.constexpr,
    KIND: tl.constexpr,
    SCALES: tl.constexpr,
    ZERO: tl.constexpr,
    HAS_SMALL: tl.constexpr,
    GROUP: tl.constexpr,
    WORDS: tl.constexpr,
    READ: tl.constexpr,
    SPLITS: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_R: tl.constexpr,
    PRECISION: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (tiles of outputs, SPLITS, tiles of rows). x [R, SIZE]; words and scales as PackedCodes has them, of OUTPUTS
    outputs, or 2 OUTPUTS with an ACTIVATION; output [R, OUTPUTS] is written, or added to (ADDS). Norm as in
    skinny_product, with one tile of rows."""
    tile = tl.program_id(0)
    split = tl.program_id(1)
    PARTS: tl.constexpr = 1 if ACTIVATION == 0 else 2
    WIDTH: tl.constexpr = BLOCK_N // PARTS
    SLOTS: tl.constexpr = 8 if (KIND == 0 or KIND == 3) else 4
    BLOCK_K: tl.constexpr = SLOTS * WORDS
    NUM_BLOCKS: tl.constexpr = (SIZE + BLOCK_K - 1) // BLOCK_K
    NUM_READS: tl.constexpr = WORDS // READ
    # Scales are loaded once for the slots of a group, at most once for each slot.
    SLOTS_OF_GROUP: tl.constexpr = GROUP // WORDS if GROUP % WORDS == 0 and GROUP < BLOCK_K else 1
    IS_ONE_GROUP: tl.constexpr = GROUP % BLOCK_K == 0 or GROUP == SIZE
    wait_for_previous(WAITS)
    rows = tl.program_id(2) * BLOCK_R + tl.arange(0, BLOCK_R)
    is_row = rows < num_rows
    places = tl.arange(0, BLOCK_N)
    channels = tile * WIDTH + places % WIDTH
    weight_rows = tl.minimum(channels, OUTPUTS - 1) + places // WIDTH * OUTPUTS
    squares = None
    if norm_ptr is not None:
        numbers = tl.arange(0, BLOCK_SQUARES)
        is_number = (numbers < NUM_SQUARES)[:, None]
        squares = tl.load(squares_ptr + numbers[:, None] * SQUARES_STRIDE + rows[None, :], mask=is_number, other=0.0)
        if SCALES_FIRST:
            inverse = inverse_rms(squares, SIZE, eps)
            squares = None

    x_rows_ptr = x_ptr + rows.to(tl.int64)[:, None] * x_stride
    words_rows_ptr = words_ptr + weight_rows.to(tl.int64)[:, None] * (NUM_BLOCKS * WORDS)
    y = tl.zeros((BLOCK_N, BLOCK_R), tl.float32)
    for step in range(STEPS):
        block = (split * STEPS + step) // NUM_READS
        offset = (split * STEPS + step) % NUM_READS * READ
        words = tl.load(
            words_rows_ptr + block * WORDS + offset + tl.arange(0, READ)[None, :],
            mask=((weight_rows >= 0) & (block < NUM_BLOCKS))[:, None],
            other=0,
        )
        for slot in tl.static_range(SLOTS):
            first = block * BLOCK_K + slot * WORDS + offset
            if slot == 0 or (not IS_ONE_GROUP and slot % SLOTS_OF_GROUP == 0):
                scale, addend = group_scales(
                    scales_ptr, weight_rows, first, slot * WORDS, PARTS * OUTPUTS, READ,
                    KIND, SCALES, ZERO, HAS_SMALL, GROUP, SIZE,
                )  # fmt: skip
            inputs = first + tl.arange(0, READ)
            is_input = inputs < SIZE
            x = tl.load(x_rows_ptr + inputs[None, :], mask=is_row[:, None] & is_input[None, :], other=0.0)
            if norm_ptr is not None:
                x = x.to(tl.float32) * tl.load(norm_ptr + inputs, mask=is_input, other=0.0)[None, :]
                if SCALES_FIRST:
                    x *= inverse[:, None]
                x = x.to(x_ptr.dtype.element_ty)
            weights = weights_of(words, scale, addend, slot, KIND, HAS_SMALL).to(x_ptr.dtype.element_ty)
            y = tl.dot(weights, tl.trans(x), y, input_precision=PRECISION)
    if SCALES == 1:
        y *= factor

    is_last = True
    if SPLITS > 1:
        is_last = store_partial(y, partials_ptr, counters_ptr, tile, split, SPLITS, BLOCK_N, BLOCK_R)
    if is_last:
        if SPLITS > 1:
            y = sum_of_partials(partials_ptr, counters_ptr, tile, SPLITS, BLOCK_N, BLOCK_R)
        finish(
            y, squares, bias_ptr, output_ptr, output_squares_ptr, output_stride, rows, num_rows, eps, tile,
            SIZE, OUTPUTS, ACTIVATION, ADDS, BLOCK_N, BLOCK_R,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CodeTiles:
    """How a product with quantised weights is divided among programs, and the programs' sizes."""

    block_n: int  #: rows of the weights in a tile; of gates and ups, half of them each
    block_r: int  #: rows of x
    read: int  #: words of a row that are read at once, a divisor of those of a block
    splits: int  #: programs that share a tile, of different inputs
    num_warps: int
    num_stages: int


@cache
def tiles_of(form: CodeForm, channels: int, num_rows: int, item_bytes: int, num_multiprocessors: int) -> CodeTiles:
    """Tiles by formula: rows in one tile up to 64, then in tiles of 128; inputs divided where there are fewer tiles
    than multiprocessors, as in skinny_product.formula_tiles."""
    block_r = next(size for size in (16, 32, 64, 128) if size >= min(num_rows, _LARGEST_TILE_ROWS))
    if item_bytes == _FLOAT32_BYTES:  # no tensor cores: registers hold all three matrices
        block_n, block_r, num_warps, num_stages = 32, ROW_TILES[0], 4, 2
    elif block_r <= _MOST_ROWS_OF_FOUR_WARPS:
        block_n, num_warps, num_stages = 64, 4, 4
        # Codes of 4 bits are bound by instructions; those for x and barriers are shared by twice as many weights.
        wide = triton.cdiv(channels, 2 * block_n)
        can_be_wide = form.slots != _SLOTS_OF_BYTES and form.words > _FEWER_WORDS and block_r == ROW_TILES[0]
        if can_be_wide and wide * form.num_blocks >= 2 * num_multiprocessors:
            block_n, num_warps = 2 * block_n, 8
    else:
        block_n, num_warps, num_stages = 128, 8, 2  # two programs at a time, within 99 KiB of shared memory each
    # Rows of x take shared memory as long as the inputs that are read at once.
    read = form.words if block_r == ROW_TILES[0] or form.slots == _SLOTS_OF_BYTES else min(form.words, _FEWER_WORDS)
    if form.group % read and form.group % _FEWER_WORDS == 0:
        read = _FEWER_WORDS  # one scale for what is read at once, not one for each input
    if form.group % read:
        num_stages = 2  # scales for each input take as much shared memory as codes
    num_tiles = triton.cdiv(channels, block_n)
    if num_rows > block_r:
        return CodeTiles(block_n, block_r, read, 1, num_warps, num_stages)
    steps = _num_steps(form, read)

    def cost(splits: int) -> float:
        blocks: int = triton.cdiv(num_tiles * splits, num_multiprocessors) * triton.cdiv(steps, splits)
        return blocks + (splits > 1) * (1 + 0.05 * splits)

    most = min(16, max(steps // 2, 1), most_splits(num_tiles, block_n * block_r))
    splits = min(range(1, most + 1), key=cost)
    return CodeTiles(block_n, block_r, read, splits, num_warps, num_stages)


def _num_steps(form: CodeForm, read: int) -> int:
    return form.num_blocks * (form.words // read)


def is_one_tile(num_rows: int, tiles: CodeTiles) -> bool:
    """Whether norms and sums of squares can be part of the product: all rows are in one tile, of up to 64."""
    return num_rows <= tiles.block_r <= MAX_ROWS


def num_squares(num_outputs: int, tiles: CodeTiles) -> int:
    """Sums of squares for each row that a product without activation stores with these tiles."""
    return int(triton.cdiv(num_outputs, tiles.block_n))


def multiply(
    x: torch.Tensor,
    weight: PackedCodes,
    bias: torch.Tensor | None,
    output: torch.Tensor,
    workspace: ProductWorkspace,
    tiles: CodeTiles,
    *,
    norm: InputNorm | None = None,
    activation: Activation = Activation.NONE,
    is_added: bool = False,
) -> None:
    """output [R, out] = activation(norm(x) weight^T + bias), or output += that (is_added). If is_one_tile the new
    output's sums of squares are stored in the workspace then.

    x [R, in], inputs in the order of the columns, rows may be strided; weight [channels, in], channels = out, or 2 out
    with an activation; bias [channels] of the dtype of x. norm: only if is_one_tile.
    """
    (num_rows, size), num_outputs = x.shape, output.shape[1]
    num_parts = 1 if activation is Activation.NONE else 2
    assert weight.num_outputs == num_parts * num_outputs
    assert weight.form.size == size
    assert weight.words.is_contiguous()
    assert weight.scales.is_contiguous()
    assert bias is None or (bias.shape == (weight.num_outputs,) and bias.is_contiguous())
    assert output.shape[0] == num_rows
    assert x.stride(1) == output.stride(1) == 1
    assert x.dtype == output.dtype == weight.dtype
    assert norm is None or (norm.weight.shape == (size,) and norm.weight.is_contiguous())
    assert norm is None or (norm.weight.dtype == torch.float32 and is_one_tile(num_rows, tiles))
    num_tiles, num_row_tiles = triton.cdiv(num_outputs * num_parts, tiles.block_n), triton.cdiv(num_rows, tiles.block_r)
    assert tiles.splits == 1 or num_row_tiles == 1
    assert tiles.splits <= most_splits(num_tiles, tiles.block_n * tiles.block_r)
    has_squares = is_added and is_one_tile(num_rows, tiles)
    assert not has_squares or (num_parts == 1 and num_tiles <= MAX_SQUARES)
    if not num_rows:
        return
    _multiply[(num_tiles, tiles.splits, num_row_tiles)](
        x,
        weight.words,
        weight.scales,
        bias,
        None if norm is None else norm.weight,
        None if norm is None else workspace.squares,
        output,
        workspace.squares if has_squares else None,
        workspace.partials if tiles.splits > 1 else None,
        workspace.counters if tiles.splits > 1 else None,
        x.stride(0),
        output.stride(0),
        num_rows,
        weight.factor,
        0.0 if norm is None else norm.eps,
        **constants(weight.form, num_outputs, activation, norm, tiles, x.dtype),
        ADDS=is_added,
        **launch_options(x.device),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )


def constants(
    form: CodeForm,
    num_outputs: int,
    activation: Activation,
    norm: InputNorm | None,
    tiles: CodeTiles,
    dtype: torch.dtype,
) -> dict[str, object]:
    """Constexpr arguments of the kernel, but for ADDS and WAITS."""
    squares = 0 if norm is None else norm.num_squares
    return form.constants() | {
        "OUTPUTS": num_outputs,
        "ACTIVATION": int(activation),
        "NUM_SQUARES": squares,
        "BLOCK_SQUARES": triton.next_power_of_2(squares) if squares else 0,
        "SCALES_FIRST": dtype == torch.float16,  # as in skinny_product
        "SPLITS": tiles.splits,
        "READ": tiles.read,
        "STEPS": triton.cdiv(_num_steps(form, tiles.read), tiles.splits),
        "BLOCK_N": tiles.block_n,
        "BLOCK_R": tiles.block_r,
        "PRECISION": "ieee",
    }
