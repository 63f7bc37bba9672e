"""Groups layers into layer types and cuts types into equal parts: the building blocks of every page design."""

import math
from collections.abc import Sequence

from engine.memory.spec import CHECKPOINT_TOKENS, LayerSpec, LayerType


def group_layers(layers: Sequence[LayerSpec], *, page_tokens: int) -> tuple[LayerType, ...]:
    """Layer types in the order of their first layer. A layer's id is its index in `layers`.

    Layers that read another layer's keys and values store nothing and are in no type. Raises ValueError for layers that
    cannot be planned.
    """
    if not layers:
        raise ValueError("a model without layers needs no page pool")
    if page_tokens < 1:
        raise ValueError(f"page_tokens must be at least 1, got {page_tokens}")
    groups: dict[LayerSpec, list[int]] = {}
    for layer_id, spec in enumerate(layers):
        if spec.shares_with is not None:
            continue
        if spec.bytes_per_token < 1:
            raise ValueError(f"layer {layer_id} stores {spec.bytes_per_token} bytes per token")
        if spec.kind in ("window", "chunked", "budgeted") and spec.span < 1:
            raise ValueError(f"layer {layer_id} is of kind {spec.kind} and needs a span")
        groups.setdefault(spec, []).append(layer_id)
    names: dict[str, int] = {}
    types = []
    for spec, layer_ids in groups.items():
        stem = ".".join(filter(None, (spec.model, spec.kind, spec.part)))
        count = names[stem] = names.get(stem, 0) + 1
        name = stem if count == 1 else f"{stem}.{count}"
        types.append(LayerType(name, spec, tuple(layer_ids), _page_tokens(spec, page_tokens)))
    return tuple(types)


def _page_tokens(spec: LayerSpec, page_tokens: int) -> int:
    return (spec.span or CHECKPOINT_TOKENS) if spec.kind == "recurrent" else page_tokens


def split_type(
    layer_type: LayerType, num_layers: int, *, page_tokens: int | None = None, page_bytes: int | None = None
) -> tuple[LayerType, ...]:
    """The type cut into parts of at most num_layers layers, with small pages padded to page_bytes where that is given.

    Each part has its own page table. page_tokens changes the tokens per page.
    """
    layer_ids = layer_type.layer_ids
    tokens = layer_type.page_tokens if page_tokens is None else page_tokens
    parts = []
    for first in range(0, len(layer_ids), num_layers):
        name = layer_type.name if num_layers >= len(layer_ids) else f"{layer_type.name}/{first // num_layers}"
        part = LayerType(name, layer_type.spec, layer_ids[first : first + num_layers], tokens)
        padding = 0 if page_bytes is None else page_bytes - part.small_page_bytes
        assert padding >= 0
        parts.append(LayerType(part.name, part.spec, part.layer_ids, tokens, padding))
    return tuple(parts)


def large_page_bytes(types: Sequence[LayerType]) -> int:
    """The least common multiple of the small pages (Jenga section 4.1)."""
    return math.lcm(*(layer_type.small_page_bytes for layer_type in types))
