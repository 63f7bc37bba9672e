"""Matrix products of at most 64 rows, which are bound by reading the weights, with their neighbours folded in: the norm
of the inputs, the activation of gates times ups, the addition to the residual stream.

A program multiplies a tile of the weights' rows with all rows of x: a tile of 16, 32 or 64 rows. Where there are fewer
tiles of weights than multiprocessors can hold, the inputs are divided among several programs (splits): each stores a
partial sum, and the one that arrives last adds them in the order of the splits. So a row's bits depend on its own
values and on the tiles, which are those of the next larger tile of rows, and on no other row.

RMS norm: the product that adds to the stream also stores sums of squares of the new stream, one for each tile and row.
The product that reads the stream multiplies by the norm's weights at once, and by the inverse root mean square at the
end, when the sums have long arrived. R = rows.
"""

import enum
from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl

from engine.kernels.gpu.dependent_launch import launch_options, wait_for_previous

#: Rows of x that a program multiplies: the least is the width of a tile of the tensor cores.
ROW_TILES = (16, 32, 64)
MAX_ROWS = ROW_TILES[-1]
#: Workspace: tiles that programs share, numbers of all their partial sums, tiles that store sums of squares.
MAX_SHARED_TILES, MAX_PARTIALS, MAX_SQUARES = 2048, 2 << 20, 1024
#: Sums of squares of a tile in the workspace, of which those of the step's rows are used.
SQUARES_STRIDE = tl.constexpr(MAX_ROWS)
#: Partial sums that a program adds at once: as many as registers can hold beside the sums.
_SUMS_IN_FLIGHT = tl.constexpr(16384)
#: 16-bit numbers in a cache line.
_LINE = tl.constexpr(64)
_FLOAT32_BYTES = 4


class Activation(enum.IntEnum):
    """What becomes of the outputs: nothing, or an activation of the gates (the first half of them) times the ups."""

    NONE = 0
    SILU_MUL = 1
    GELU_TANH_MUL = 2


@triton.jit
def inverse_rms(squares, size: tl.constexpr, eps):
    """[R] float32 from sums of squares [tiles, R]."""
    return tl.rsqrt(tl.sum(squares, axis=0) / size + eps)


@triton.jit
def finish(
    y,
    squares,
    bias_ptr,
    output_ptr,
    output_squares_ptr,
    output_stride,
    rows,
    num_rows,
    eps,
    tile,
    SIZE: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ADDS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    """Scale, bias, activation and addition of the sums y [BLOCK_N, BLOCK_R], stored transposed. squares: of the rows of
    x that are still to be divided by their root mean square."""
    PARTS: tl.constexpr = 1 if ACTIVATION == 0 else 2
    WIDTH: tl.constexpr = BLOCK_N // PARTS
    places = tl.arange(0, BLOCK_N)
    channels = tile * WIDTH + places % WIDTH
    if squares is not None:
        y *= inverse_rms(squares, SIZE, eps)[None, :]
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + channels + places // WIDTH * OUTPUTS, mask=channels < OUTPUTS, other=0.0)
        y += bias.to(tl.float32)[:, None]
    if ACTIVATION != 0:
        gates, ups = tl.split(tl.permute(tl.reshape(y, (2, WIDTH, BLOCK_R)), (1, 2, 0)))
        # gelu(x) = x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), as in activation.py
        inner = gates if ACTIVATION == 1 else 1.5957691216057308 * (gates + 0.044715 * gates * gates * gates)
        y = gates * tl.sigmoid(inner) * ups
    columns = tile * WIDTH + tl.arange(0, WIDTH)
    output = output_ptr + rows.to(tl.int64)[None, :] * output_stride + columns[:, None]
    is_output = (rows < num_rows)[None, :] & (columns < OUTPUTS)[:, None]
    if ADDS:
        y += tl.load(output, mask=is_output, other=0.0).to(tl.float32)
    rounded = y.to(output_ptr.dtype.element_ty)
    tl.store(output, rounded, mask=is_output)
    if output_squares_ptr is not None:
        kept = tl.where(is_output, rounded.to(tl.float32), 0.0)
        tl.store(output_squares_ptr + tile * SQUARES_STRIDE + rows, tl.sum(kept * kept, axis=0))


@triton.jit
def store_partial(
    y, partials_ptr, counters_ptr, tile, split, SPLITS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr
):
    """Stores the partial sums y [BLOCK_N, BLOCK_R] of a tile, and says whether those of all splits are there."""
    partial = tl.arange(0, BLOCK_N)[:, None] * BLOCK_R + tl.arange(0, BLOCK_R)[None, :]
    tl.store(partials_ptr + (tile * SPLITS + split) * BLOCK_N * BLOCK_R + partial, y)
    tl.debug_barrier()  # the partial sums of all threads lie before the arrival of one of them
    return tl.atomic_add(counters_ptr + tile, 1, sem="acq_rel", scope="gpu") == SPLITS - 1


@triton.jit
def sum_of_partials(
    partials_ptr, counters_ptr, tile, SPLITS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr
):
    """The sums of a tile in the order of its splits, [BLOCK_N, BLOCK_R]; zeroes its counter."""
    partial = tl.arange(0, BLOCK_N)[:, None] * BLOCK_R + tl.arange(0, BLOCK_R)[None, :]
    tile_ptr = partials_ptr + tile * SPLITS * BLOCK_N * BLOCK_R
    y = tl.zeros((BLOCK_N, BLOCK_R), tl.float32)
    AT_ONCE: tl.constexpr = min(4, _SUMS_IN_FLIGHT // (BLOCK_N * BLOCK_R))  # loads in flight
    for first in range(0, tl.num_programs(1), AT_ONCE):
        for number in tl.static_range(AT_ONCE):
            y += tl.load(
                tile_ptr + (first + number) * BLOCK_N * BLOCK_R + partial,
                mask=(first + number < SPLITS) & (partial >= 0),
                other=0.0,
                cache_modifier=".cg",
            )
    tl.store(counters_ptr + tile, 0)
    return y


@triton.jit
def _prefetch(weight_rows_ptr, first, SIZE: tl.constexpr, BLOCK_K: tl.constexpr):
    """Brings the first blocks of weights into the second-level cache, while the kernel before this one still runs: it
    does not write them."""
    inputs = tl.minimum(first + tl.arange(0, 4 * BLOCK_K // _LINE) * _LINE, SIZE - 1)
    addresses = (weight_rows_ptr + inputs[None, :]).to(tl.int64)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [addresses], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit(do_not_specialize=["num_rows"])
def _multiply(
    x_ptr,
    weight_ptr,
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
    eps,
    SIZE: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ADDS: tl.constexpr,
    NUM_SQUARES: tl.constexpr,
    BLOCK_SQUARES: tl.constexpr,
    SCALES_FIRST: tl.constexpr,
    SPLITS: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
    WAITS: tl.constexpr,
):
    """Grid (tiles of outputs, SPLITS). x [R, SIZE], weight [OUTPUTS, SIZE, or 2 OUTPUTS with an ACTIVATION]; output
    [R, OUTPUTS] is written, or added to (ADDS). norm_ptr [SIZE]: the norm's weights, with sums of squares of x
    [NUM_SQUARES, SQUARES_STRIDE]; SCALES_FIRST: x is divided by its root mean square before it is rounded to the
    weights' dtype."""
    tile = tl.program_id(0)
    split = tl.program_id(1)
    PARTS: tl.constexpr = 1 if ACTIVATION == 0 else 2
    WIDTH: tl.constexpr = BLOCK_N // PARTS
    places = tl.arange(0, BLOCK_N)
    channels = tile * WIDTH + places % WIDTH
    weight_rows = tl.minimum(channels, OUTPUTS - 1) + places // WIDTH * OUTPUTS
    weight_rows_ptr = weight_ptr + weight_rows.to(tl.int64)[:, None] * SIZE
    if WAITS:
        _prefetch(weight_rows_ptr, split * STEPS * BLOCK_K, SIZE, BLOCK_K)
    wait_for_previous(WAITS)
    rows = tl.arange(0, BLOCK_R)
    is_row = rows < num_rows
    squares = None
    if norm_ptr is not None:
        numbers = tl.arange(0, BLOCK_SQUARES)
        is_number = (numbers < NUM_SQUARES)[:, None]
        squares = tl.load(squares_ptr + numbers[:, None] * SQUARES_STRIDE + rows[None, :], mask=is_number, other=0.0)
        if SCALES_FIRST:
            inverse = inverse_rms(squares, SIZE, eps)
            squares = None

    x_rows_ptr = x_ptr + rows.to(tl.int64)[:, None] * x_stride
    y = tl.zeros((BLOCK_N, BLOCK_R), tl.float32)
    for step in range(STEPS):
        inputs = (split * STEPS + step) * BLOCK_K + tl.arange(0, BLOCK_K)
        is_input = inputs < SIZE
        weights = tl.load(
            weight_rows_ptr + inputs[None, :], mask=(channels < OUTPUTS)[:, None] & is_input[None, :], other=0.0
        )
        x = tl.load(x_rows_ptr + inputs[None, :], mask=is_row[:, None] & is_input[None, :], other=0.0)
        if norm_ptr is not None:
            x = x.to(tl.float32) * tl.load(norm_ptr + inputs, mask=is_input, other=0.0)[None, :]
            if SCALES_FIRST:
                x *= inverse[:, None]
            x = x.to(weights.dtype)
        y = tl.dot(weights, tl.trans(x), y, input_precision=PRECISION)

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
class ProductTiles:
    """How a product is divided among programs, and the programs' sizes."""

    block_n: int  #: rows of the weights in a tile; of gates and ups, half of them each
    block_r: int  #: rows of x, one of ROW_TILES
    block_k: int  #: inputs that are multiplied at once
    splits: int  #: programs that share a tile
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class ProductWorkspace:
    """Partial sums of products that are divided along their inputs, and sums of squares. One for all products of a
    device, which run one after another."""

    partials: torch.Tensor  #: [MAX_PARTIALS] float32; holds nothing between products
    counters: torch.Tensor  #: [tiles] int32: programs that have arrived; zero between products
    squares: torch.Tensor  #: [tiles, MAX_ROWS] float32: of the stream, from the product that adds to it to the next one

    @classmethod
    def allocate(cls, device: torch.device) -> "ProductWorkspace":
        """Allocates 8 MiB, for the largest products."""
        return cls(
            torch.empty(MAX_PARTIALS, dtype=torch.float32, device=device),
            torch.zeros(MAX_SHARED_TILES, dtype=torch.int32, device=device),
            torch.empty((MAX_SQUARES, MAX_ROWS), dtype=torch.float32, device=device),
        )


@dataclass(frozen=True, slots=True)
class InputNorm:
    """RMS norm of a product's inputs, whose sums of squares the workspace holds."""

    weight: torch.Tensor  #: [in] float32: numbers of 16 bits cannot be copied asynchronously one by one
    eps: float
    num_squares: int  #: sums of squares for each row


@cache
def formula_tiles(size: int, channels: int, num_rows: int, item_bytes: int, num_multiprocessors: int) -> ProductTiles:
    """Tiles for up to 64 rows of x with weights [channels, size]: those whose busiest multiprocessor has the least to
    read. A row of x comes from the second-level cache and costs about half of a row of weights; a program that shares a
    tile pays about as much as for reading two blocks of 64 x 128, and what its partial sums take."""
    block_r = next(rows for rows in ROW_TILES if rows >= num_rows)
    sizes_n: tuple[int, ...]
    if item_bytes == _FLOAT32_BYTES:  # no tensor cores: more would spill
        sizes_n, most_k = (32,), 32 if block_r < MAX_ROWS else 16
    else:  # two programs at a time, within 99 KiB of shared memory each
        sizes_n, most_k = ((64,), 128) if block_r < MAX_ROWS else ((128, 64), 64)
    block_k = min(max(triton.next_power_of_2(size), 16), most_k)
    steps = triton.cdiv(size, block_k)
    shares = [
        (min(max(triton.next_power_of_2(channels), 16), block_n), splits)
        for block_n in sizes_n
        for splits in range(1, min(16, max(steps // 2, 1)) + 1)
        if splits <= most_splits(triton.cdiv(channels, block_n), block_n * block_r)
    ]

    def cost(share: tuple[int, int]) -> float:
        block_n, splits = share
        num_programs = triton.cdiv(channels, block_n) * splits
        blocks: int = triton.cdiv(num_programs, num_multiprocessors) * triton.cdiv(steps, splits)
        partials = (2 + 0.1 * splits * block_r / ROW_TILES[0]) * 64 * 128 if splits > 1 else 0.0
        return blocks * int(block_k) * (block_n + block_r / 2) + partials

    block_n, splits = min(shares, key=cost)
    return ProductTiles(block_n, block_r, block_k, splits, num_warps=8 if block_n > 64 else 4, num_stages=4)


def most_splits(num_tiles: int, tile_size: int) -> int:
    """Most programs that can share each of so many tiles, in the room that the workspace has; at least 1."""
    return max(MAX_PARTIALS // (num_tiles * tile_size), 1) if num_tiles <= MAX_SHARED_TILES else 1


def num_squares(num_outputs: int, tiles: ProductTiles) -> int:
    """Sums of squares for each row that a product without activation stores with these tiles."""
    return int(triton.cdiv(num_outputs, tiles.block_n))


def multiply(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    output: torch.Tensor,
    workspace: ProductWorkspace,
    tiles: ProductTiles,
    *,
    norm: InputNorm | None = None,
    activation: Activation = Activation.NONE,
    is_added: bool = False,
) -> None:
    """output [R, out] = activation(norm(x) weight^T + bias), or output += that (is_added), with sums of squares of the
    new output in the workspace.

    x [R, in], R <= 64, rows may be strided; weight [channels, in] contiguous, of the same dtype, channels = out, or
    2 out with an activation; bias [channels].
    """
    (num_rows, size), (num_channels, num_outputs) = x.shape, (weight.shape[0], output.shape[1])
    num_parts = 1 if activation is Activation.NONE else 2
    assert num_rows <= tiles.block_r <= MAX_ROWS
    assert weight.shape == (num_parts * num_outputs, size)
    assert weight.is_contiguous()
    assert bias is None or (bias.shape == (num_channels,) and bias.is_contiguous())
    assert output.shape[0] == num_rows
    assert x.stride(1) == output.stride(1) == 1
    assert x.dtype == weight.dtype == output.dtype
    assert norm is None or (norm.weight.shape == (size,) and norm.weight.is_contiguous())
    assert norm is None or norm.weight.dtype == torch.float32
    num_tiles = triton.cdiv(num_channels, tiles.block_n)
    assert tiles.splits <= most_splits(num_tiles, tiles.block_n * tiles.block_r)
    assert not is_added or (num_parts == 1 and num_tiles <= MAX_SQUARES)
    if not num_rows:
        return
    _multiply[(num_tiles, tiles.splits)](
        x,
        weight,
        bias,
        None if norm is None else norm.weight,
        None if norm is None else workspace.squares,
        output,
        workspace.squares if is_added else None,
        workspace.partials if tiles.splits > 1 else None,
        workspace.counters if tiles.splits > 1 else None,
        x.stride(0),
        output.stride(0),
        num_rows,
        0.0 if norm is None else norm.eps,
        **_constants(size, num_outputs, activation, norm, tiles, x.dtype),
        ADDS=is_added,
        **launch_options(x.device),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )


def _constants(
    size: int,
    num_outputs: int,
    activation: Activation,
    norm: InputNorm | None,
    tiles: ProductTiles,
    dtype: torch.dtype,
) -> dict[str, object]:
    squares = 0 if norm is None else norm.num_squares
    return {
        "SIZE": size,
        "OUTPUTS": num_outputs,
        "ACTIVATION": int(activation),
        "NUM_SQUARES": squares,
        "BLOCK_SQUARES": triton.next_power_of_2(squares) if squares else 0,
        # Products of the stream and the norm's weights may be too large for float16 before they are divided.
        "SCALES_FIRST": dtype == torch.float16,
        "SPLITS": tiles.splits,
        "STEPS": triton.cdiv(triton.cdiv(size, tiles.block_k), tiles.splits),
        "BLOCK_N": tiles.block_n,
        "BLOCK_R": tiles.block_r,
        "BLOCK_K": tiles.block_k,
        "PRECISION": "ieee",
    }
