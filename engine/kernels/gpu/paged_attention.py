"""Paged attention on CUDA devices: launchers of attend_pages for decodes and for mixed steps.

The launchers neither allocate nor wait for the device; grids depend on shapes and on bounds known to the host.

Decodes: as long as the workspace has the same number of splits, a row's result does not depend on the other rows of the
step, to the last bit. A row is cut by its own length (attention_tiles.most_parts), and its parts are merged in a fixed
order.

Prompts: a tile is cut by the tokens that it reads and by the number of its row's queries. One that reads no more than
part_tokens tokens is never cut. Two things depend on the other prompts of the step, and may change the last bits of a
result behind a longer context: whether tiles of 64 rows and more are cut at all (attention_tiles.prompt_parts), and the
tile size, which the row of most queries decides. Decodes beside them change nothing.

Pages of one part (multi-head latent attention) hold keys alone: the values are their last channels, as many as the
output has.

T = tokens, B = rows, H, K = query and key/value heads, G = H / K, D = head dimension, C = channels of a value (D where
values are stored), P = tokens in a page.
"""

from dataclasses import dataclass

import torch
import triton

from engine.kernels.gpu.attend_pages import attend_pages
from engine.kernels.gpu.attention_tiles import (
    AttentionTiles,
    Mode,
    halves_values,
    heads_of_tile,
    merges_parts,
    most_parts,
    most_registers,
    num_programs,
    prompt_parts,
    tiles_for,
)
from engine.kernels.gpu.dependent_launch import launch_options
from engine.kernels.gpu.launching import launch as start
from engine.kernels.gpu.merge_states import merge_states
from engine.kernels.hardware import architecture_of, num_multiprocessors
from engine.kernels.step_kernels import AttentionOptions, PageScales, SplitWorkspace

_PAGE_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.float8_e4m3fn)
#: Alignment of page strides in elements and of the pages' address in bytes; otherwise loads have 16 bits and registers
#: spill.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Parts:
    """The states that a launch writes instead of results."""

    workspace: SplitWorkspace  #: with a row for each query, or more
    limit: int  #: no tile has more parts; in mixed mode all tiles of a row together
    counts: torch.Tensor  #: [rows] int32: receives the number of each row's states, with earlier ones
    earlier: torch.Tensor | None = None  #: [rows] int32: states that an earlier launch has written
    are_merged: bool = False  #: into the result, by the programs themselves; in decode and suffix mode


def attend_decode(
    query: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    context_lengths: torch.Tensor,
    output: torch.Tensor,
    options: AttentionOptions,
    workspace: SplitWorkspace,
    scales: PageScales | None = None,
) -> None:
    """Writes output [B, H, C] for one query per row, as StepKernels.attend_decode defines.

    A context is split into at most as many parts as the workspace has splits; 2 * multiprocessors / K splits let a
    single row fill the device. Raises ValueError if tensors do not fit.
    """
    check_step(query, pages, page_table, slots, context_lengths, output, options, scales)
    check_rows(query, slots, output, workspace)
    if not len(slots):
        return
    tiles = step_tiles("decode", query, pages, output, 1, options)
    limit = workspace.outputs.shape[2]
    has_parts = most_parts(tiles, options.most_tokens, limit) > 1
    counts = workspace.counts[0]
    are_merged = can_merge(query, pages, output)
    launch(
        "decode",
        tiles,
        query,
        pages,
        page_table,
        slots,
        context_lengths,
        output,
        options,
        scales,
        parts=Parts(workspace, limit, counts, are_merged=are_merged) if has_parts else None,
    )
    if has_parts and not are_merged:
        merge_states(workspace.outputs, workspace.lse, counts, output)


def attend_mixed(
    query: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    context_lengths: torch.Tensor,
    query_starts: torch.Tensor,
    output: torch.Tensor,
    options: AttentionOptions,
    workspace: SplitWorkspace,
    max_queries: int,
    max_context: int,
    scales: PageScales | None = None,
) -> None:
    """Writes output [T, H, C] for any number of queries per row, as StepKernels.attend_mixed defines. Raises ValueError
    if tensors do not fit."""
    check_step(query, pages, page_table, slots, context_lengths, output, options, scales)
    check_starts(query_starts, len(slots))
    check_workspace(output, workspace)
    if not len(slots) or not len(query):
        return
    tiles = step_tiles("mixed", query, pages, output, max_queries, options)
    tile_heads = _tile_heads(query, pages, output)
    max_tokens = max_context if options.most_tokens is None else min(max_context, options.most_tokens)
    limit = prompt_parts(
        tiles,
        tile_heads,
        len(query),
        len(slots),
        query.shape[1] // tile_heads,
        max_tokens,
        num_multiprocessors(query.device),
    )
    parts = None
    if limit > 1 and limit * len(query) <= workspace.counts.shape[1]:  # a row of one tile may have all of them
        parts = Parts(workspace.shaped(len(query), limit), limit, workspace.counts[0])
    launch(
        "mixed",
        tiles,
        query,
        pages,
        page_table,
        slots,
        context_lengths,
        output,
        options,
        scales,
        starts=query_starts,
        parts=parts,
    )
    if parts is not None:
        merge_states(parts.workspace.outputs, parts.workspace.lse, parts.counts, output)


def launch(
    mode: Mode,
    tiles: AttentionTiles,
    query: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    context_lengths: torch.Tensor,
    output: torch.Tensor,
    options: AttentionOptions,
    scales: PageScales | None,
    *,
    starts: torch.Tensor | None = None,
    prefixes: torch.Tensor | None = None,
    parts: Parts | None = None,
) -> None:
    """Launch attend_pages once, on checked arguments. starts: query_starts [B + 1] in mixed mode, group_starts [g + 1]
    in prefix mode; prefixes [B]: prefix lengths, in prefix and suffix mode; parts: write states into its workspace, not
    output."""
    num_kv_heads, page_tokens, key_dim = pages.shape[2:]
    num_heads, value_dim = output.shape[1:]
    tile_heads = _tile_heads(query, pages, output)
    head_tiles = num_heads // tile_heads
    grid_tiles, num_owners, tile_queries = len(slots), 0, 1
    if starts is not None:
        num_owners = len(starts) - 1
        tile_queries = tiles.block_m // tile_heads
        grid_tiles = len(query) // tile_queries + num_owners
    programs, max_parts = 1, 1
    strides: tuple[int, ...] = (*output.stride()[:2], 0, 0, 0)
    lse, counts, earlier, merged, arrivals = None, None, None, None, None
    if parts is not None:
        most = most_parts(tiles, options.most_tokens, parts.workspace.lse.shape[2], tile_queries)
        programs = num_programs(grid_tiles, head_tiles * tiles.value_tiles, most, num_multiprocessors(query.device))
        max_parts, counts, earlier = parts.limit, parts.counts, parts.earlier
        if parts.are_merged:
            assert tiles.value_tiles == 1, "a program merges all channels of its heads"
            merged, arrivals = output, parts.workspace.arrivals
        output, lse = parts.workspace.outputs, parts.workspace.lse
        strides = (*output.stride()[:3], *lse.stride()[:2])
    scale_strides = (0, 0, 0) if scales is None else scales.key.stride()
    start(attend_pages, (grid_tiles, head_tiles * tiles.value_tiles, programs))(
        query,
        pages,
        page_table,
        slots,
        context_lengths,
        starts,
        prefixes,
        output,
        lse,
        counts,
        earlier,
        merged,
        arrivals,
        options.alibi_slopes,
        options.sinks,
        None if scales is None else scales.key,
        None if scales is None else scales.value,
        *pages.stride()[:4],
        page_table.stride(0),
        *query.stride()[:2],
        *strides,
        *((0, 0) if merged is None else merged.stride()[:2]),
        *scale_strides,
        num_owners,
        max_parts,
        options.most_tokens or 0,
        options.scale,
        options.softcap or 1.0,
        MODE=mode,
        HAS_PARTS=parts is not None,
        HAS_WINDOW=options.most_tokens is not None,
        IS_CHUNKED=options.chunk is not None,
        HAS_SOFTCAP=options.softcap is not None,
        IS_CAUSAL=options.is_causal,
        GROUP_SIZE=tile_heads,
        HEAD_TILES=head_tiles // num_kv_heads,
        VALUE_TILES=tiles.value_tiles,
        PAGE_TOKENS=page_tokens,
        HEAD_DIM=value_dim // tiles.value_tiles,
        BLOCK_D=max(triton.next_power_of_2(value_dim // tiles.value_tiles), 16),
        TURNED_DIM=key_dim - value_dim,
        BLOCK_TURNED=max(triton.next_power_of_2(key_dim - value_dim), 16),
        BLOCK_M=tiles.block_m,
        BLOCK_T=tiles.block_t,
        MIN_PART=tiles.part_tokens,
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
        UPCAST=query.dtype == torch.bfloat16 and triton.knobs.runtime.interpret,
        **launch_options(query.device),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        maxnreg=most_registers(mode, value_dim),
    )


def step_tiles(
    mode: Mode,
    query: torch.Tensor,
    pages: torch.Tensor,
    output: torch.Tensor,
    max_queries: int,
    options: AttentionOptions,
) -> AttentionTiles:
    """Tile sizes for these tensors on their device; max_queries as in tiles_for."""
    sizes = (output.shape[2], _tile_heads(query, pages, output), max_queries)
    is_plain = options.most_tokens is None and options.softcap is None and pages.shape[1] == 2
    has_halves = _has_halves(query, pages, output)
    return tiles_for(mode, query.dtype, pages.dtype, *sizes, _architecture(query.device), is_plain, has_halves)


def can_merge(query: torch.Tensor, pages: torch.Tensor, output: torch.Tensor) -> bool:
    """Whether programs merge the parts of decodes themselves."""
    return merges_parts(_tile_heads(query, pages, output), output.shape[2])


def _tile_heads(query: torch.Tensor, pages: torch.Tensor, output: torch.Tensor) -> int:
    """Query heads of one tile."""
    num_heads, value_dim = output.shape[1:]
    return heads_of_tile(num_heads // pages.shape[2], value_dim, _has_halves(query, pages, output))


def _has_halves(query: torch.Tensor, pages: torch.Tensor, output: torch.Tensor) -> bool:
    has_latents = pages.shape[1] == 1
    return halves_values(query.dtype, pages.dtype, output.shape[2], has_latents, _architecture(query.device))


def _architecture(device: torch.device) -> int:
    return architecture_of(device) or 90  # the interpreter


def check_step(
    query: torch.Tensor,
    pages: torch.Tensor,
    page_table: torch.Tensor,
    slots: torch.Tensor,
    context_lengths: torch.Tensor,
    output: torch.Tensor,
    options: AttentionOptions,
    scales: PageScales | None,
) -> None:
    """Raises ValueError unless shapes, dtypes, strides and alignment are those that attend_pages needs."""
    num_heads, head_dim = query.shape[1:]
    num_parts, value_dim = pages.shape[1], output.shape[-1]
    if num_parts not in (1, 2) or pages.shape[4] != head_dim or num_heads % pages.shape[2]:
        raise ValueError(f"pages {list(pages.shape)} do not fit queries {list(query.shape)}")
    if output.shape[:2] != query.shape[:2] or (value_dim != head_dim if num_parts == 2 else value_dim >= head_dim):
        raise ValueError(f"output {list(output.shape)} does not fit queries {list(query.shape)} and {num_parts} parts")
    if query.stride(2) != 1 or output.stride(2) != 1 or pages.stride(4) != 1:
        raise ValueError("the channels of queries, outputs and pages must be adjacent")
    if pages.dtype not in _PAGE_DTYPES or query.dtype not in _PAGE_DTYPES[:3]:
        raise ValueError(f"queries of {query.dtype} cannot read pages of {pages.dtype}")
    if pages.dtype == torch.float8_e4m3fn and _architecture(pages.device) < 89:
        raise ValueError("the device has no float8_e4m3fn (compute capability 8.9 has): pages of int8 are as small")
    if pages.stride(0) % _ALIGNMENT or pages.data_ptr() % _ALIGNMENT:
        raise ValueError(f"page stride {pages.stride(0)} must be a multiple of 16 elements, the first page of 16 bytes")
    if page_table.dtype != torch.int32 or page_table.stride(1) != 1:
        raise ValueError("the page table must be int32, and entries of a row adjacent")
    for name, rows in (("slots", slots), ("context lengths", context_lengths)):
        if rows.dtype != torch.int32 or rows.shape != slots.shape or not rows.is_contiguous():
            raise ValueError(f"{name} must be {len(slots)} adjacent int32, not {list(rows.shape)} {rows.dtype}")
    for name, factors in (("ALiBi slopes", options.alibi_slopes), ("sinks", options.sinks)):
        if factors is not None and (factors.shape != (num_heads,) or factors.dtype != torch.float32):
            raise ValueError(f"{name} must be {num_heads} float32, not {list(factors.shape)} {factors.dtype}")
    if options.scale <= 0:
        raise ValueError(f"the scale of scores must be positive, not {options.scale}")
    _check_scales(query, pages, scales)


def _check_scales(query: torch.Tensor, pages: torch.Tensor, scales: PageScales | None) -> None:
    if scales is None:
        if pages.dtype != query.dtype:
            raise ValueError(f"pages of {pages.dtype} without scales for queries of {query.dtype}")
        return
    shape = (pages.shape[0], pages.shape[2], pages.shape[3])
    for factors in (scales.key, scales.value):
        if factors.shape != shape or factors.dtype != torch.float32 or factors.stride() != scales.key.stride():
            raise ValueError(f"scales must be {list(shape)} float32, equally strided, not {list(factors.shape)}")


def check_starts(starts: torch.Tensor, num_owners: int) -> None:
    """Raises ValueError unless starts is [num_owners + 1] int32, contiguous."""
    if starts.shape != (num_owners + 1,) or starts.dtype != torch.int32 or not starts.is_contiguous():
        raise ValueError(f"starts must be {num_owners + 1} adjacent int32, not {list(starts.shape)} {starts.dtype}")


def check_rows(query: torch.Tensor, slots: torch.Tensor, output: torch.Tensor, workspace: SplitWorkspace) -> None:
    """Raises ValueError unless there is one query per row and the workspace has room for them."""
    if len(query) != len(slots):
        raise ValueError(f"{len(query)} queries for {len(slots)} rows")
    check_workspace(output, workspace)
    if len(workspace.outputs) < len(query):
        raise ValueError(f"workspace {list(workspace.outputs.shape)} is too small for queries {list(query.shape)}")


def check_workspace(output: torch.Tensor, workspace: SplitWorkspace) -> None:
    """Raises ValueError unless the workspace is made for the heads of these outputs, and is in one piece."""
    rows, num_heads, splits, value_dim = workspace.outputs.shape
    if (num_heads, value_dim) != tuple(output.shape[1:]):
        raise ValueError(f"workspace {list(workspace.outputs.shape)} is not for outputs {list(output.shape)}")
    sizes = (tuple(workspace.lse.shape), tuple(workspace.counts.shape), tuple(workspace.arrivals.shape))
    if sizes != ((rows, num_heads, splits), (2, rows * splits), (rows * num_heads,)):
        raise ValueError(f"workspace: outputs {list(workspace.outputs.shape)}, lse, counts and arrivals {sizes}")
    tensors = (workspace.outputs, workspace.lse, workspace.counts, workspace.arrivals)
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("the tensors of a workspace must be contiguous")
