"""The shipped configurations of attend_pages: shapes of known models, with the tiles that tiles_for chooses for
them."""

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
    most_registers,
    tiles_for,
)
from engine.kernels.gpu.compilation import ARCHITECTURES, Compilation, Expectation

_DTYPES = {
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "i8": torch.int8,
    "fp8e4nv": torch.float8_e4m3fn,
}
_INDEX_POINTERS = ("table_ptr", "slots_ptr", "lengths_ptr", "starts_ptr", "prefixes_ptr", "counts_ptr", "earlier_ptr")
_STRIDES = (
    "value_stride",
    "kv_head_stride",
    "token_stride",
    "query_stride",
    "query_head_stride",
    "output_stride",
    "output_head_stride",
    "output_part_stride",
    "merged_stride",
    "merged_head_stride",
)
_COUNTS = (
    "table_stride",
    "lse_stride",
    "lse_head_stride",
    "scale_page_stride",
    "scale_head_stride",
    "scale_token_stride",
    "num_owners",
    "max_parts",
    "window",
)


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention shape and features of one model in one mode. dtypes are Triton's names: a key of _DTYPES."""

    model: str
    mode: Mode
    head_dim: int
    group_size: int
    max_queries: int = 1
    dtype: str = "bf16"
    page_dtype: str = "bf16"
    page_tokens: int = 16
    has_parts: bool = False
    has_window: bool = False
    is_chunked: bool = False  #: a window that is a chunk
    has_softcap: bool = False
    has_alibi: bool = False
    has_sinks: bool = False
    is_causal: bool = True
    turned_dim: int = 0  #: channels of a key before those that are its value; 0: values are stored

    def has_halves(self, architecture: int) -> bool:
        """True if tiles of 64 rows have half of the values' channels."""
        dtypes = (_DTYPES[self.dtype], _DTYPES[self.page_dtype])
        return halves_values(*dtypes, self.head_dim, self.turned_dim > 0, architecture)

    def tile_heads(self, architecture: int) -> int:
        """Query heads of a tile."""
        return heads_of_tile(self.group_size, self.head_dim, self.has_halves(architecture))

    @property
    def are_merged(self) -> bool:
        """Whether programs merge the states of their tiles."""
        is_of_one = self.has_parts and self.mode in ("decode", "suffix")
        return is_of_one and merges_parts(self.tile_heads(90), self.head_dim)

    def tiles(self, architecture: int) -> AttentionTiles:
        """Tile sizes for an architecture (80, 89, 90)."""
        dtypes = (_DTYPES[self.dtype], _DTYPES[self.page_dtype])
        sizes = (self.head_dim, self.tile_heads(architecture), self.max_queries)
        is_plain = not self.has_window and not self.has_softcap and not self.turned_dim
        return tiles_for(self.mode, *dtypes, *sizes, architecture, is_plain, self.has_halves(architecture))

    @property
    def architectures(self) -> tuple[int, ...]:
        """Architectures that have the dtype of the pages: float8 needs 89 or newer."""
        return tuple(a for a in ARCHITECTURES if a >= 89 or self.page_dtype != "fp8e4nv")


def compilations(attention: Attention, architectures: tuple[int, ...]) -> list[Compilation]:
    """One compilation for each group of architectures with equal tiles."""
    by_tiles: dict[AttentionTiles, tuple[int, ...]] = {}
    for architecture in architectures:
        tiles = attention.tiles(architecture)
        by_tiles[tiles] = (*by_tiles.get(tiles, ()), architecture)
    return [_compilation(attention, tiles, architectures) for tiles, architectures in by_tiles.items()]


def _compilation(attention: Attention, tiles: AttentionTiles, architectures: tuple[int, ...]) -> Compilation:
    a = attention
    tile_heads = a.tile_heads(architectures[0])
    head_dim = a.head_dim // tiles.value_tiles
    has_starts = a.mode in ("mixed", "prefix")
    has_scales = a.page_dtype != a.dtype
    pointers = {
        "query_ptr": f"*{a.dtype}",
        "pages_ptr": f"*{a.page_dtype}",
        "table_ptr": "*i32",
        "slots_ptr": "*i32",
        "lengths_ptr": "*i32",
        "starts_ptr": "*i32" if has_starts else None,
        "prefixes_ptr": "*i32" if a.mode in ("prefix", "suffix") else None,
        "output_ptr": "*fp32" if a.has_parts else f"*{a.dtype}",
        "lse_ptr": "*fp32" if a.has_parts else None,
        "counts_ptr": "*i32" if a.has_parts else None,
        "earlier_ptr": "*i32" if a.mode == "suffix" else None,
        "merged_ptr": f"*{a.dtype}" if a.are_merged else None,
        "arrivals_ptr": "*i32" if a.are_merged else None,
        "slopes_ptr": "*fp32" if a.has_alibi else None,
        "sinks_ptr": "*fp32" if a.has_sinks else None,
        "key_scales_ptr": "*fp32" if has_scales else None,
        "value_scales_ptr": "*fp32" if has_scales else None,
    }
    features = {
        "in parts": a.has_parts,
        "window": a.has_window and not a.is_chunked,
        "chunks": a.is_chunked,
        "soft cap": a.has_softcap,
        "ALiBi": a.has_alibi,
        "sinks": a.has_sinks,
        "not causal": not a.is_causal,
        f"latents and {a.turned_dim}": a.turned_dim > 0,
    }
    words = [f"attend_pages {a.mode}", a.dtype if not has_scales else f"{a.dtype} from {a.page_dtype}"]
    words += [f"D {a.head_dim}", f"G {a.group_size}", f"pages of {a.page_tokens}"]
    words += [feature for feature, is_there in features.items() if is_there]
    words += [f"tiles {tiles.block_m} x {tiles.block_t}", a.model]
    aligned = {name for name, kind in pointers.items() if kind and name not in _INDEX_POINTERS}
    return Compilation(
        name=", ".join(words),
        kernel=attend_pages,
        signature={name: kind for name, kind in pointers.items() if kind}
        | {"page_stride": "i64"}
        | dict.fromkeys((*_STRIDES, *_COUNTS), "i32")
        | {"score_scale": "fp32", "softcap": "fp32"},
        constants={name: None for name, kind in pointers.items() if not kind}
        | {
            "MODE": a.mode,
            "HAS_PARTS": a.has_parts,
            "HAS_WINDOW": a.has_window,
            "IS_CHUNKED": a.is_chunked,
            "HAS_SOFTCAP": a.has_softcap,
            "IS_CAUSAL": a.is_causal,
            "GROUP_SIZE": tile_heads,
            "HEAD_TILES": a.group_size // tile_heads,
            "VALUE_TILES": tiles.value_tiles,
            "PAGE_TOKENS": a.page_tokens,
            "HEAD_DIM": head_dim,
            "BLOCK_D": max(triton.next_power_of_2(head_dim), 16),
            "TURNED_DIM": a.turned_dim,
            "BLOCK_TURNED": max(triton.next_power_of_2(a.turned_dim), 16),
            "BLOCK_M": tiles.block_m,
            "BLOCK_T": tiles.block_t,
            "MIN_PART": tiles.part_tokens,
            "PRECISION": "ieee" if a.dtype == "fp32" else "tf32",
            "UPCAST": False,
        },
        divisible_by_16=frozenset({*aligned, "page_stride", *_STRIDES}),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        max_registers=most_registers(a.mode, a.head_dim),
        expectation=Expectation(max_registers=_max_registers(a), has_async_copies=True, has_wgmma=tiles.block_m >= 64),
        architectures=architectures,
    )


def _max_registers(attention: Attention) -> int:
    """Registers per thread. The speed of decodes depends on occupancy: three programs per multiprocessor, two if pages
    are converted."""
    if attention.head_dim > 128 or attention.mode in ("mixed", "prefix"):
        return 255
    return 168 if attention.page_dtype == attention.dtype else 208


def shipped() -> list[Compilation]:
    """Models that are compiled for all architectures, and variants that are compiled for 90 only."""
    everywhere = [
        Attention("Llama-3.2-1B", "decode", 64, 4, has_parts=True),
        Attention("Llama-3.2-1B", "mixed", 64, 4, 512),
        Attention("Llama-3.1-8B", "decode", 128, 4, has_parts=True),
        Attention("Llama-3.1-8B", "decode", 128, 4, page_dtype="i8", has_parts=True),
        Attention("Llama-3.1-8B", "decode", 128, 4, page_dtype="fp8e4nv", has_parts=True),
        Attention("Llama-3.1-8B", "mixed", 128, 4, 512),
        Attention("Llama-3.1-8B", "mixed", 128, 4, 512, page_dtype="i8"),
        Attention("Llama-3.1-8B", "mixed", 128, 4, 64, has_parts=True),
        Attention("Gemma-2-9B", "decode", 256, 2, has_parts=True, has_window=True, has_softcap=True),
        Attention("Gemma-2-9B", "mixed", 256, 2, 512, has_window=True, has_softcap=True),
        Attention("Mistral-7B-v0.1", "mixed", 128, 4, 512, has_window=True),
        Attention("Gemma-4-31B", "decode", 512, 8, has_parts=True),
        Attention("Gemma-4-31B", "mixed", 512, 8, 512),
        Attention("DeepSeek-V3", "decode", 512, 128, has_parts=True, turned_dim=64),
        Attention("DeepSeek-V3", "mixed", 512, 128, 512, turned_dim=64),
        Attention("DeepSeek-V2-Lite", "decode", 512, 16, has_parts=True, turned_dim=64),
    ]
    # Variants of these in a mask or a shape are checked on one architecture.
    elsewhere = [
        Attention("Llama-3.1-8B", "decode", 128, 4),
        Attention("Llama-3.1-8B", "decode", 128, 4, page_tokens=64, has_parts=True),
        Attention("Llama-3.1-8B", "mixed", 128, 4, 16),
        Attention("Llama-3.1-8B", "mixed", 128, 4, 16, has_parts=True),
        Attention("Llama-3.1-8B", "mixed", 128, 4, 4, has_parts=True),
        Attention("Llama-3.1-8B", "mixed", 128, 4, 8, has_parts=True),
        Attention("Qwen3-0.6B", "mixed", 128, 2, 16, has_parts=True),
        Attention("Qwen3-30B-A3B", "prefix", 128, 8, 8, has_parts=True),
        Attention("Qwen3.5-2B", "mixed", 256, 4, 4, has_parts=True),
        Attention("Llama-3.1-8B", "mixed", 128, 4, 64, page_dtype="i8", has_parts=True),
        Attention("Llama-3.2-1B", "mixed", 64, 4, 64, has_parts=True),
        Attention("Gemma-2-9B", "mixed", 256, 2, 64, has_parts=True, has_window=True, has_softcap=True),
        Attention("Gemma-2-9B", "mixed", 256, 2, 16, has_parts=True, has_window=True, has_softcap=True),
        Attention("Gemma-2-9B", "suffix", 256, 2, has_parts=True, has_softcap=True),
        Attention("Llama-3.1-8B", "mixed", 128, 4, 512, page_dtype="fp8e4nv"),
        Attention("Llama-3.1-8B", "prefix", 128, 4, 64, has_parts=True),
        Attention("Llama-3.1-8B", "suffix", 128, 4, has_parts=True),
        Attention("Llama-3.2-11B-Vision", "mixed", 128, 4, 512, is_causal=False),
        Attention("Llama-3.2-1B", "decode", 64, 4, dtype="fp32", page_dtype="fp32", has_parts=True),
        Attention("Llama-3.2-1B", "mixed", 64, 4, 512, dtype="fp32", page_dtype="fp32"),
        Attention("Phi-3-mini", "decode", 96, 1, has_parts=True),
        Attention("MPT-7B", "mixed", 128, 1, 512, has_alibi=True),
        Attention("Gemma-4-31B", "decode", 512, 8, page_dtype="i8", has_parts=True),
        Attention("Gemma-4-31B", "mixed", 512, 8, 512, page_dtype="i8"),
        Attention("Gemma-4-31B", "mixed", 512, 8, 16, has_parts=True),
        Attention("gpt-oss-20b", "decode", 64, 8, has_parts=True, has_window=True, has_sinks=True),
        Attention("Llama-4-Scout", "decode", 128, 5, has_parts=True, has_window=True, is_chunked=True),
        Attention("Llama-4-Scout", "mixed", 128, 5, 512, has_window=True, is_chunked=True),
        Attention("DeepSeek-V2-Lite", "decode", 512, 16, page_dtype="fp8e4nv", has_parts=True, turned_dim=64),
        Attention("DeepSeek-V2-Lite", "mixed", 512, 16, 16, has_parts=True, turned_dim=64),
        Attention("DeepSeek-V2-Lite", "mixed", 512, 16, 2, has_parts=True, turned_dim=64),
        Attention("DeepSeek-V3", "prefix", 512, 128, 4, has_parts=True, turned_dim=64),
    ]
    return [c for attention in everywhere for c in compilations(attention, attention.architectures)] + [
        c for attention in elsewhere for c in compilations(attention, (90,))
    ]
