"""From what each layer stores to the layout of the page pool. A pure function of numbers; allocates nothing.

Jenga (arXiv 2503.18292) section 4: layers that store the same thing form a layer type; the large page is the least
common multiple of the small pages of all types, so that one large page can be cut into pages of any type without rest.
"""

import math
from collections.abc import Sequence

from engine.memory.policies import policy_for
from engine.memory.spec import NUM_NULL_LARGE_PAGES, LayerSpec, LayerType, PoolPlan


def group_layers(layers: Sequence[LayerSpec], *, page_tokens: int) -> tuple[LayerType, ...]:
    """Layer types in the order of their first layer. A layer's id is its index in `layers`."""
    if not layers:
        raise ValueError("a model without layers needs no page pool")
    if page_tokens < 1:
        raise ValueError(f"page_tokens must be at least 1, got {page_tokens}")
    groups: dict[LayerSpec, list[int]] = {}
    for layer_id, spec in enumerate(layers):
        if spec.bytes_per_token < 1:
            raise ValueError(f"layer {layer_id} stores {spec.bytes_per_token} bytes per token")
        groups.setdefault(spec, []).append(layer_id)
    names: dict[str, int] = {}
    types = []
    for spec, layer_ids in groups.items():
        stem = f"{spec.model}.{spec.kind}"
        count = names[stem] = names.get(stem, 0) + 1
        name = stem if count == 1 else f"{stem}.{count}"
        types.append(LayerType(name, spec, tuple(layer_ids), page_tokens))
    return tuple(types)


def large_page_bytes(types: Sequence[LayerType]) -> int:
    """The least common multiple of the small pages (Jenga section 4.1)."""
    return math.lcm(*(layer_type.small_page_bytes for layer_type in types))


def plan_pool(layers: Sequence[LayerSpec], *, page_tokens: int, pool_bytes: int) -> PoolPlan:
    """The layout of a pool of at most `pool_bytes`, the null page included.

    Raises ValueError where not even one large page would be left for requests.
    """
    types = group_layers(layers, page_tokens=page_tokens)
    page_bytes = large_page_bytes(types)
    num_large_pages = pool_bytes // page_bytes
    if num_large_pages <= NUM_NULL_LARGE_PAGES:
        needed = (NUM_NULL_LARGE_PAGES + 1) * page_bytes
        raise ValueError(f"a page pool of {pool_bytes} bytes is too small: this model needs at least {needed} bytes")
    return PoolPlan(types, page_bytes, num_large_pages)


def pool_bytes_for(types: Sequence[LayerType], *, num_tokens: int, num_sequences: int = 1) -> int:
    """Bytes of the smallest pool in which that many sequences of that length fit at once, null page included."""
    page_bytes = large_page_bytes(types)
    num_large_pages = NUM_NULL_LARGE_PAGES
    for layer_type in types:
        num_small_pages = num_sequences * policy_for(layer_type).num_pages(num_tokens)
        num_large_pages += -(-num_small_pages * layer_type.small_page_bytes // page_bytes)
    return num_large_pages * page_bytes
