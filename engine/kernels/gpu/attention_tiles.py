"""Tile sizes of paged attention: the measured ones for the device (engine/kernels/tuned), else by formula."""

import functools
from dataclasses import dataclass
from typing import Literal

import torch
import triton

from engine.kernels.gpu.tuning import Key, tuned_values

#: Tokens per part: 64 to 128 KiB of one head's keys and values at D 128, so that reading them hides the start of a
#: program.
_PART_TOKENS = 256
#: The same for prompts, whose tiles of 64 rows and more have states as large as the keys and values of 128 tokens.
_PROMPT_PART_TOKENS = 512
#: Programs of a grid for each multiprocessor, of which two or three run at once. Rows of even lengths need no more than
#: these; with as many in turn, the programs of one long row do not run on alone at the end. An empty program costs
#: about 1 ns, all of them 4 us, where all contexts are short [estimated].
_PROGRAMS_PER_MULTIPROCESSOR = 32
#: Programs of mixed steps that run on a multiprocessor at once; tiles of 64 rows and more leave no room for a second.
_SMALL_TILES_AT_ONCE = 2
#: Channels of all heads of a tile whose parts one program merges: eight times those of a program of merge_states, which
#: has half as many threads.
_MOST_MERGED_CHANNELS = 2048

Mode = Literal["decode", "mixed", "prefix", "suffix"]


@dataclass(frozen=True, slots=True)
class AttentionTiles:
    """Launch parameters of attend_pages; chosen by tiles_for."""

    block_m: int  #: rows of a tile: queries times query heads per key/value head
    block_t: int  #: tokens read per iteration
    part_tokens: int  #: least tokens of a part of a row's context; whole tiles
    num_warps: int
    num_stages: int
    value_tiles: int = 1  #: programs that share the channels of the values; 2: latents in tiles of 64 rows


def heads_of_tile(group_size: int, head_dim: int, has_halves: bool = False) -> int:
    """How many of the query heads of a key/value head one tile takes: all of them if their sums fit into registers,
    else the largest part that divides them. has_halves: as in tiles_for."""
    most = _most_rows(head_dim, has_halves)
    return next(heads for heads in range(min(group_size, most), 0, -1) if group_size % heads == 0)


@functools.cache
def tiles_for(
    mode: Mode,
    dtype: torch.dtype,
    page_dtype: torch.dtype,
    head_dim: int,
    group_size: int,
    max_queries: int,
    architecture: int,
    is_plain: bool = True,
    has_halves: bool = False,
) -> AttentionTiles:
    """Tiles measured on this architecture, else formula_tiles.

    head_dim: channels of a value. group_size: query heads per tile. max_queries: most queries of a row in mixed mode,
    most rows of a group in prefix mode, else 1. architecture: compute capability, 80, 89, 90 and so on. is_plain:
    without window and soft cap, values stored beside keys; only these are measured. has_halves: halves_values holds.
    """
    if is_plain:
        values = tuned_values(
            Key.of_attention(mode, dtype, page_dtype, head_dim, group_size, max_queries), architecture
        )
        if values is not None:
            return AttentionTiles(**values)
    return formula_tiles(mode, dtype, page_dtype, head_dim, group_size, max_queries, architecture, is_plain, has_halves)


def formula_tiles(
    mode: Mode,
    dtype: torch.dtype,
    page_dtype: torch.dtype,
    head_dim: int,
    group_size: int,
    max_queries: int,
    architecture: int,
    is_plain: bool = True,
    has_halves: bool = False,
) -> AttentionTiles:
    """Tiles by formula; arguments as in tiles_for."""
    block_d = max(triton.next_power_of_2(head_dim), 16)
    rows = triton.next_power_of_2(max_queries * group_size)
    block_m = max(min(rows, _most_rows(head_dim, has_halves)), triton.next_power_of_2(group_size), 16)
    if has_halves and block_m == 64:
        return AttentionTiles(block_m, 32, _PART_TOKENS, 8, 2, value_tiles=2)
    if block_d > 256 and dtype != torch.float32:
        # A tile of 64 rows and all channels would spill; two tiles of 32 tokens, or three of 16, fit. Conversion of
        # eight bits takes registers, too.
        if block_m == 16:
            return AttentionTiles(block_m, 16, _PART_TOKENS, 8 if page_dtype.itemsize == 1 else 4, 3)
        return AttentionTiles(block_m, 32, _PART_TOKENS, 8, 2)
    if dtype == torch.float32:
        # float32 products use no tensor cores: a thread's registers hold its part of all three matrices.
        block_m = max(16, triton.next_power_of_2(group_size))
        most_channels = 128 if mode in ("decode", "suffix") else 64
        return AttentionTiles(block_m, 32 if block_d <= most_channels else 16, _PART_TOKENS, 4, 2)
    if block_m < 64:
        # One query or a few: memory-bound. Two tiles of keys and values in flight are 64 KiB; pages with half the bytes
        # per element need four tiles in flight for that.
        block_t = {16: 128, 32: 128, 64: 128, 128: 64}.get(block_d, 32)
        # Masks and soft caps take the registers that 32 rows of 256 channels leave to four warps, converting eight bits
        # those of 128 channels.
        is_tight = (block_d > 128 and not is_plain) or (block_d > 64 and page_dtype.itemsize == 1)
        num_warps = 8 if block_m == 32 and is_tight else 4
        return AttentionTiles(block_m, block_t, _PART_TOKENS, num_warps, 5 if page_dtype.itemsize == 1 else 3)
    part_tokens = _PROMPT_PART_TOKENS if mode == "mixed" else _PART_TOKENS
    if 90 <= architecture < 120:
        num_warps = 8 if block_m > 64 or block_d > 128 else 4
        block_t, num_stages = (64, 3) if block_d <= 128 else (32, 2)
        if mode == "prefix" and block_m == 64:
            num_stages = 2  # addresses of a third tile spill registers; two programs have two tiles in flight
        return AttentionTiles(block_m, block_t, part_tokens, num_warps, num_stages)
    # Without warp group products (wgmma) the operands go through registers, and windows, soft caps and conversions need
    # registers too. sm_120 has neither these products nor more shared memory than sm_89.
    is_tight = not is_plain or page_dtype.itemsize == 1
    if block_d > 64 and is_tight:
        block_m = max(min(block_m, 64), triton.next_power_of_2(group_size))
    block_t = 64 if block_d <= 64 else 32 if block_d <= 128 or not is_tight else 16
    return AttentionTiles(block_m, block_t, part_tokens, 8, 3 if block_d <= 128 else 2)


def halves_values(
    dtype: torch.dtype, page_dtype: torch.dtype, head_dim: int, has_latents: bool, architecture: int
) -> bool:
    """True if tiles of 64 rows have two programs, each with half of the channels of the values: latents of more than
    256 channels, where there are warp group products and shared memory for queries of 576 channels. Codes of 8 bits
    would be converted twice."""
    is_small = dtype == torch.float32 or page_dtype.itemsize == 1
    return has_latents and not is_small and 256 < head_dim <= 512 and head_dim % 16 == 0 and 90 <= architecture < 120


def _most_rows(head_dim: int, has_halves: bool) -> int:
    """Rows of a tile whose sums leave registers for all else."""
    return 64 if has_halves else 32 if head_dim > 256 else 64 if head_dim > 128 else 128


def most_registers(mode: Mode, head_dim: int) -> int | None:
    """Registers that the compiler may give each thread; None: as it likes. Left alone, ptxas aims at three programs for
    each multiprocessor and spills for that, even where shared memory holds two. Decodes of few channels need fewer."""
    return None if mode in ("decode", "suffix") and head_dim <= 128 else 255


def merges_parts(tile_heads: int, value_dim: int) -> bool:
    """Whether the programs of a tile of one query merge its parts themselves. More channels would take one program
    about as long as a launch."""
    return tile_heads * int(triton.next_power_of_2(value_dim)) <= _MOST_MERGED_CHANNELS


def most_parts(tiles: AttentionTiles, window: int | None, max_parts: int, num_queries: int = 1) -> int:
    """Bound on the parts of any tile of up to num_queries queries.

    The kernel cuts the tokens of each tile by itself, into parts of `part_tokens` tokens or of 1 / max_parts of them,
    whichever is more. So a row's parts, and the last bits of its result, do not depend on the other rows.
    """
    if window is None:
        return max_parts
    # The first step of a program may begin before the window.
    return min(-(-(window + num_queries + tiles.block_t - 2) // tiles.part_tokens), max_parts)


def num_programs(num_tiles: int, head_tiles: int, num_parts: int, num_multiprocessors: int) -> int:
    """Programs that share the parts of each tile, of up to num_parts: the third dimension of the grid. Each takes every
    so many-th part, so it decides no bit of a result. head_tiles: tiles of one query's heads."""
    wanted = -(-_PROGRAMS_PER_MULTIPROCESSOR * num_multiprocessors // (num_tiles * head_tiles))
    return max(min(wanted, num_parts), 1)


def prompt_parts(
    tiles: AttentionTiles,
    group_size: int,
    num_queries: int,
    num_rows: int,
    head_tiles: int,
    max_tokens: int,
    num_multiprocessors: int,
) -> int:
    """Most parts of all tiles of a row together, in mixed mode: as many as run at once, since the states of more would
    have to be written and merged, too. 1: tiles are not cut.

    group_size: query heads per tile, of which a query has head_tiles. num_queries: of all rows together. max_tokens:
    bound on what a query reads. Large tiles are not cut where the step has enough of them to fill half of the device.
    Small ones are, whatever the batch, as decodes are.
    """
    if max_tokens <= tiles.part_tokens:
        return 1
    if tiles.block_m < 64:
        return max(_SMALL_TILES_AT_ONCE * num_multiprocessors // head_tiles, 1)
    num_tiles = max(num_queries - num_rows, 0) // (tiles.block_m // group_size) + num_rows  # or fewer
    return num_multiprocessors // head_tiles if 2 * num_tiles * head_tiles <= num_multiprocessors else 1
