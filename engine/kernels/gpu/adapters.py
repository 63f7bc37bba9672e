"""Low-rank adapters of a linear layer: two launches for all rows, parts and adapters of a step.

Matrices lie by slot in memory of fixed addresses, with room for the largest rank, and rows come as tiles of one adapter
each. So launches depend on the number of tiles alone, and can be captured as a CUDA graph; a tile without rows ends at
once. A row's sums are those of its own row and adapter, in one order.

S = slots, and one for no adapter, P = parts of the layer, R = room for ranks of a part, K = inputs, O = outputs of all
parts, N = tiles.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from engine.kernels.adapters import AdapterRows, AdapterTiles, LowRank
from engine.kernels.gpu.launching import launch
from engine.kernels.operators import AdapterShape

#: Ranks are computed in blocks of this many.
_BLOCK_R = 16
_BLOCK_K = 64
_BLOCK_N = 64
_NUM_WARPS = 4
_NUM_STAGES = 3


@triton.jit
def _multiply_down(
    x_ptr,
    down_ptr,
    ranks_ptr,
    first_rows_ptr,
    num_rows_ptr,
    slots_ptr,
    middle_ptr,
    x_stride,
    NUM_PARTS: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    NUM_INPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Grid (N, blocks of ranks, P). x [T, K], down [S, P, R, K], ranks [S, P] int32 -> middle [T, P, R]."""
    tile = tl.program_id(0)
    part = tl.program_id(2)
    count = tl.load(num_rows_ptr + tile)
    slot = tl.load(slots_ptr + tile)
    num_ranks = tl.load(ranks_ptr + slot * NUM_PARTS + part)
    if (count == 0) | (tl.program_id(1) * BLOCK_R >= num_ranks):
        return
    places = tl.arange(0, BLOCK_M)
    rows = (tl.load(first_rows_ptr + tile) + tl.minimum(places, count - 1)).to(tl.int64)
    ranks = tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)
    inputs = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rows[:, None] * x_stride + inputs[None, :]
    matrix = (slot * NUM_PARTS + part).to(tl.int64) * (NUM_RANKS * NUM_INPUTS)
    down_ptrs = down_ptr + matrix + ranks[:, None] * NUM_INPUTS + inputs[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_R), tl.float32)
    for first in range(0, NUM_INPUTS, BLOCK_K):
        if NUM_INPUTS % BLOCK_K == 0:
            x = tl.load(x_ptrs + first)
            down = tl.load(down_ptrs + first)
        else:
            is_input = (first + inputs < NUM_INPUTS)[None, :]
            x = tl.load(x_ptrs + first, mask=is_input, other=0.0)
            down = tl.load(down_ptrs + first, mask=is_input, other=0.0)
        sums = tl.dot(x, tl.trans(down), sums, input_precision=PRECISION)
    middle_ptrs = middle_ptr + rows[:, None] * (NUM_PARTS * NUM_RANKS) + part * NUM_RANKS + ranks[None, :]
    tl.store(middle_ptrs, sums.to(middle_ptr.dtype.element_ty), mask=(places < count)[:, None])


@triton.jit
def _add_up(
    middle_ptr,
    up_ptr,
    gains_ptr,
    shifts_ptr,
    ranks_ptr,
    firsts_ptr,
    first_rows_ptr,
    num_rows_ptr,
    slots_ptr,
    y_ptr,
    y_stride,
    NUM_PARTS: tl.constexpr,
    NUM_RANKS: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    """Grid (N, blocks of the widest part's outputs, P). middle [T, P, R], up [S, O, R], gains and shifts [S, O]
    float32, firsts [P + 1] int32: the parts' first outputs -> y [T, O] = y gains + shifts + up middle."""
    tile = tl.program_id(0)
    part = tl.program_id(2)
    count = tl.load(num_rows_ptr + tile)
    slot = tl.load(slots_ptr + tile)
    num_ranks = tl.load(ranks_ptr + slot * NUM_PARTS + part)
    first_output = tl.load(firsts_ptr + part) + tl.program_id(1) * BLOCK_N
    end_output = tl.load(firsts_ptr + part + 1)
    if (count == 0) | (num_ranks == 0) | (first_output >= end_output):
        return
    places = tl.arange(0, BLOCK_M)
    rows = (tl.load(first_rows_ptr + tile) + tl.minimum(places, count - 1)).to(tl.int64)
    outputs = first_output + tl.arange(0, BLOCK_N)
    is_output = outputs < end_output
    outputs = tl.minimum(outputs, end_output - 1)
    ranks = tl.arange(0, BLOCK_R)
    middle_ptrs = middle_ptr + rows[:, None] * (NUM_PARTS * NUM_RANKS) + part * NUM_RANKS + ranks[None, :]
    of_slot = slot.to(tl.int64) * NUM_OUTPUTS
    up_ptrs = up_ptr + (of_slot + outputs)[:, None] * NUM_RANKS + ranks[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, num_ranks, BLOCK_R):
        middle = tl.load(middle_ptrs + first)
        up = tl.load(up_ptrs + first)
        sums = tl.dot(middle, tl.trans(up), sums, input_precision=PRECISION)
    y_ptrs = y_ptr + rows[:, None] * y_stride + outputs[None, :]
    is_kept = (places < count)[:, None] & is_output[None, :]
    base = tl.load(y_ptrs, mask=is_kept, other=0.0).to(tl.float32)
    gains = tl.load(gains_ptr + of_slot + outputs)
    shifts = tl.load(shifts_ptr + of_slot + outputs)
    tl.store(y_ptrs, (base * gains[None, :] + shifts[None, :] + sums).to(y_ptr.dtype.element_ty), mask=is_kept)


class GpuAdapterProduct:
    """The AdapterProduct on CUDA."""

    is_capturable = True

    def __init__(self, shape: AdapterShape) -> None:
        """Takes the memory of all slots."""
        num_slots, num_parts, device = shape.num_slots + 1, len(shape.num_outputs), shape.device
        num_ranks = triton.cdiv(shape.max_rank, _BLOCK_R) * _BLOCK_R
        ends = torch.tensor(shape.num_outputs).cumsum(0).tolist()
        self._firsts_on_host = [0, *ends]
        self._widest = max(shape.num_outputs)
        self._down = torch.zeros((num_slots, num_parts, num_ranks, shape.num_inputs), dtype=shape.dtype, device=device)
        self._up = torch.zeros((num_slots, ends[-1], num_ranks), dtype=shape.dtype, device=device)
        self._gains = torch.ones((num_slots, ends[-1]), device=device)
        self._shifts = torch.zeros((num_slots, ends[-1]), device=device)
        self._ranks = torch.zeros((num_slots, num_parts), dtype=torch.int32, device=device)
        self._firsts = torch.tensor(self._firsts_on_host, dtype=torch.int32, device=device)
        self._device = device

    def place(self, slot: int, parts: Sequence[LowRank]) -> None:
        """As AdapterProduct.place. Queued behind the steps in flight."""
        assert 0 < slot < len(self._ranks)
        self._ranks[slot] = 0
        for part in parts:
            index = self._firsts_on_host.index(part.first_output)
            outputs, rank = slice(part.first_output, part.first_output + len(part.up)), len(part.down)
            self._down[slot, index] = 0
            self._down[slot, index, :rank] = part.down.to(self._device)
            self._up[slot, outputs] = 0
            self._up[slot, outputs, :rank] = part.up.to(self._device)
            self._gains[slot, outputs] = 1.0 if part.gains is None else part.gains.to(self._device)
            self._shifts[slot, outputs] = 0.0 if part.shifts is None else part.shifts.to(self._device)
            self._ranks[slot, index] = rank

    def add(self, x: torch.Tensor, y: torch.Tensor, rows: AdapterRows) -> None:
        """As AdapterProduct.add."""
        assert x.stride(1) == 1
        assert y.stride(1) == 1
        tiles = rows.tiles if rows.tiles is not None else AdapterTiles.of(rows.runs).to(self._device)
        _, num_parts, num_ranks, num_inputs = self._down.shape
        middle = torch.empty((len(x), num_parts, num_ranks), dtype=x.dtype, device=x.device)
        constants = _constants(num_parts, num_ranks, x.dtype)
        num_tiles = len(tiles.slots)
        places = (tiles.first_rows, tiles.num_rows, tiles.slots)
        launch(_multiply_down, (num_tiles, num_ranks // _BLOCK_R, num_parts))(
            x,
            self._down,
            self._ranks,
            *places,
            middle,
            x.stride(0),
            **constants,
            NUM_INPUTS=num_inputs,
            BLOCK_K=_BLOCK_K,
            num_warps=_NUM_WARPS,
            num_stages=_NUM_STAGES,
        )
        launch(_add_up, (num_tiles, triton.cdiv(self._widest, _BLOCK_N), num_parts))(
            middle,
            self._up,
            self._gains,
            self._shifts,
            self._ranks,
            self._firsts,
            *places,
            y,
            y.stride(0),
            **constants,
            NUM_OUTPUTS=self._up.shape[1],
            BLOCK_N=_BLOCK_N,
            num_warps=_NUM_WARPS,
            num_stages=_NUM_STAGES,
        )


def _constants(num_parts: int, num_ranks: int, dtype: torch.dtype) -> dict[str, object]:
    return {
        "NUM_PARTS": num_parts,
        "NUM_RANKS": num_ranks,
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
        "BLOCK_M": AdapterTiles.MOST_ROWS,
        "BLOCK_R": _BLOCK_R,
    }
