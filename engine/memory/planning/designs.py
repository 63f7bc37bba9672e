"""Ways to cut one pool into pages for layers that store different things, and what one request holds under each.

`lcm` is Jenga's own (arXiv 2503.18292 section 4.1); `gcd` and `max_page` are the alternatives that its section 4.4
weighs; `equal_page` does what vLLM 0.33 does (groups of equally many layers, padded); `uniform` is PagedAttention as
published, one page table for all layers. Pure functions of numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.memory.planning.grouping import group_layers, large_page_bytes, split_type
from engine.memory.spec import LayerSpec, LayerType


@dataclass(frozen=True, slots=True)
class Design:
    """Types, or parts of types, with their small pages, and the large page that all of them divide."""

    name: str
    types: tuple[LayerType, ...]
    large_page_bytes: int

    @property
    def num_page_tables(self) -> int:
        """Page tables of one sequence."""
        return len(self.types)

    def ratio(self, layer_type: LayerType) -> int:
        """Small pages of this type in one large page."""
        return self.large_page_bytes // layer_type.small_page_bytes

    def held_bytes(self, num_tokens: int, image_tokens: int = 0) -> int:
        """Bytes of the large pages that one request of that many tokens occupies, if it shares none of them."""
        num_large = sum(-(-held_pages(kind, num_tokens, image_tokens) // self.ratio(kind)) for kind in self.types)
        return num_large * self.large_page_bytes


def held_pages(layer_type: LayerType, num_tokens: int, image_tokens: int = 0) -> int:
    """Small pages that a request of that many tokens must have.

    A moving window straddles a page boundary, so it has one page more than its tokens fill: engines reserve that page
    for any length, and the published figures count it. A recurrent layer has its running state; its checkpoints are
    cached, not needed.
    """
    size, spec = layer_type.page_tokens, layer_type.spec
    match spec.kind:
        case "full":
            return -(-num_tokens // size)
        case "window":
            return -(-min(num_tokens, spec.span) // size) + 1
        case "chunked":
            return -(-min(num_tokens, spec.span) // size) + (spec.span % size != 0)
        case "recurrent":
            return 1
        case "cross" | "vision":
            return -(-image_tokens // size)
        case "budgeted":
            return -(-min(num_tokens, spec.span) // size)


def live_bytes(layers: Sequence[LayerSpec], num_tokens: int, image_tokens: int = 0) -> int:
    """Bytes that a request of that many tokens needs in all layers, without pages: waste is measured against it."""
    total = 0
    for spec in layers:
        if spec.shares_with is not None:
            continue
        match spec.kind:
            case "full":
                total += num_tokens * spec.bytes_per_token
            case "window" | "chunked" | "budgeted":
                total += min(num_tokens, spec.span) * spec.bytes_per_token
            case "recurrent":
                total += spec.bytes_per_token
            case "cross" | "vision":
                total += image_tokens * spec.bytes_per_token
    return total


def uniform_waste(layers: Sequence[LayerSpec], num_tokens: int, image_tokens: int = 0) -> float:
    """Share of memory that is waste when every layer keeps every token of the text and of the images, as
    PagedAttention does, without page rounding (the closed forms of Jenga section 3)."""
    attention = [spec for spec in layers if spec.shares_with is None and spec.kind != "recurrent"]
    held = sum((num_tokens + image_tokens) * spec.bytes_per_token for spec in attention)
    return 1 - live_bytes(attention, num_tokens, image_tokens) / held


def lcm_design(layers: Sequence[LayerSpec], *, page_tokens: int) -> Design:
    """One page table per type; the large page is the least common multiple."""
    types = group_layers(layers, page_tokens=page_tokens)
    return Design("lcm", types, large_page_bytes(types))


def gcd_design(layers: Sequence[LayerSpec], *, page_tokens: int) -> Design:
    """Every type cut into parts of as many layers as the greatest common divisor of all layer counts."""
    types = group_layers(layers, page_tokens=page_tokens)
    num_layers = math.gcd(*(len(layer_type.layer_ids) for layer_type in types))
    parts = tuple(part for layer_type in types for part in split_type(layer_type, num_layers))
    return Design("gcd", parts, large_page_bytes(parts))


def max_page_design(layers: Sequence[LayerSpec], *, page_tokens: int) -> Design:
    """One page size for all types, that of the large page: attention gets so many tokens per page that it fills it
    exactly (for Jamba 1,344), a recurrent state takes a whole page."""
    types = group_layers(layers, page_tokens=page_tokens)
    page_bytes = large_page_bytes(types)
    grown = []
    for layer_type in types:
        if layer_type.spec.kind == "recurrent":
            grown.append(replace(layer_type, padding_bytes=page_bytes - layer_type.small_page_bytes))
        else:
            grown.append(
                replace(layer_type, page_tokens=layer_type.page_tokens * page_bytes // layer_type.small_page_bytes)
            )
    return Design("max_page", tuple(grown), page_bytes)


def equal_page_design(layers: Sequence[LayerSpec], *, page_tokens: int) -> Design:
    """vLLM 0.33: groups of equally many layers share one page size.

    Attention pages grow until one layer's page is as large as a recurrent state, whose page is then padded; smaller
    attention layers get more tokens per page. The group size is the smallest layer count of a type, or the largest
    where that is less than 1.5 times as much; incomplete groups are padded. That engine has no per-layer budgets, and
    keeps image embeddings outside the pool.
    """
    types = group_layers([_without_budget(spec) for spec in _merge_states(layers)], page_tokens=page_tokens)
    states = [kind.layer_page_bytes for kind in types if kind.spec.kind == "recurrent"]
    attention = [kind for kind in types if kind.spec.kind != "recurrent"]
    tokens = page_tokens
    if attention:
        largest = max(kind.spec.bytes_per_token for kind in attention)
        if states:
            tokens = page_tokens * max(1, -(-max(states) // (page_tokens * largest)))
        layer_bytes = max([tokens * largest, *states])
    else:
        layer_bytes = max(states)
    counts = [len(kind.layer_ids) for kind in types]
    group_size = max(counts) if 2 * max(counts) < 3 * min(counts) else min(counts)
    page_bytes = group_size * layer_bytes
    groups: list[LayerType] = []
    for kind in types:
        if kind.spec.kind == "recurrent":
            groups += split_type(kind, group_size, page_bytes=page_bytes)
        else:
            fitting = layer_bytes // kind.spec.bytes_per_token
            groups += split_type(kind, group_size, page_tokens=fitting, page_bytes=page_bytes)
    return Design("equal_page", tuple(groups), page_bytes)


def uniform_design(layers: Sequence[LayerSpec], *, page_tokens: int) -> Design:
    """PagedAttention as published: one page table, every attention layer keeps every token."""
    attention = [spec for spec in layers if spec.shares_with is None and spec.kind not in ("recurrent", "vision")]
    bytes_per_token = sum(spec.bytes_per_token for spec in attention)
    merged = LayerType("main.full", LayerSpec("full", bytes_per_token, attention[0].dtype), (0,), page_tokens)
    return Design("uniform", (merged,), merged.small_page_bytes)


def _merge_states(layers: Sequence[LayerSpec]) -> list[LayerSpec]:
    """The two states of a Mamba layer as one page, and no image embeddings."""
    merged: list[LayerSpec] = []
    for spec in layers:
        if spec.kind == "vision" or spec.shares_with is not None:
            continue
        previous = merged[-1] if merged else None
        if spec.part == "ssm" and previous is not None and previous.part == "conv":
            merged[-1] = replace(previous, bytes_per_token=previous.bytes_per_token + spec.bytes_per_token, part="")
        else:
            merged.append(spec)
    return merged


def _without_budget(spec: LayerSpec) -> LayerSpec:
    return replace(spec, kind="full", span=0) if spec.kind == "budgeted" else spec
