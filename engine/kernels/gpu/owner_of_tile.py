"""Which sequence a tile of rows belongs to, in grids that are as large as the host can bound."""

import triton
import triton.language as tl


@triton.jit
def owner_of_tile(starts_ptr, num_owners, tile, ROWS: tl.constexpr):
    """The owner (sequence or group) of a tile of ROWS rows, by binary search. Owner i has the tiles from
    starts[i] // ROWS + i on: enough for its rows, and computed without reading all lengths."""
    left = tile * 0
    right = left + num_owners
    while left < right:
        middle = (left + right) // 2
        is_behind = tl.load(starts_ptr + middle) // ROWS + middle <= tile
        left = tl.where(is_behind, middle + 1, left)
        right = tl.where(is_behind, right, middle)
    return left - 1
