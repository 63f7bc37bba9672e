"""Cuts one pool for several models: a large page that suits the layer types of all, and what that costs each of them.

Within one model the planner is free to choose the large page (planner.py). Here it is common, and each model's types
are cut so that their small pages divide it: as many layers and tokens as fit best, padded to a divisor. The cost is
compared with the model's own best design. A draft model is fitted to the design that its model has without it. Pure
functions of numbers.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.memory.planning.design_search import CHAT_WEIGHTS
from engine.memory.planning.designs import Design, held_pages, live_bytes
from engine.memory.planning.grouping import group_layers, split_type
from engine.memory.planning.planner import MAX_PAGE_TABLES, choose_design
from engine.memory.spec import LayerSpec, LayerType

#: Two models suit one another if a common large page adds no more than this to the expected waste of each.
TOLERATED_WASTE = 0.05
#: Large pages beyond this size would be left partly empty by most requests.
_MAX_LARGE_PAGE_BYTES = 64 << 20
#: Small pages begin at multiples of this where layers do: rows of a head stay aligned for vector loads.
_ALIGNMENT = 256
#: What one more page table costs, as a share of live bytes: every table is work in every step.
_TABLE_COST = 0.0003
_MULTIPLES = (1, 2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """What a model of the pool stores."""

    layers: tuple[LayerSpec, ...]
    page_tokens: int = 16


@dataclass(frozen=True, slots=True)
class Together:
    """A common cut of one pool."""

    large_page_bytes: int
    designs: Mapping[str, Design]  #: by model
    waste: Mapping[str, float]  #: expected, over live bytes, by model
    waste_alone: Mapping[str, float]  #: of each model's own best design

    @property
    def cost(self) -> Mapping[str, float]:
        """Expected waste of each model that it would not have in a pool of its own."""
        return {model: self.waste[model] - self.waste_alone[model] for model in self.designs}

    @property
    def fits_well(self) -> bool:
        """Whether no model loses more than TOLERATED_WASTE."""
        return max(self.cost.values()) <= TOLERATED_WASTE


def plan_together(models: Mapping[str, StoredModel], *, pool_bytes: int | None = None) -> Together:
    """The large page with the least expected waste over all models. pool_bytes: large pages are at most 1 / 64 of it.

    Raises ValueError where no large page within the bounds holds a layer of every model.
    """
    alone = {name: choose_design(model.layers, page_tokens=model.page_tokens) for name, model in models.items()}
    waste_alone = {name: expected_waste(models[name].layers, design) for name, design in alone.items()}
    if len(models) == 1:
        (only,) = alone.values()
        return Together(only.large_page_bytes, alone, waste_alone, waste_alone)
    best: Together | None = None
    for large_page_bytes in sorted(_candidates([design.large_page_bytes for design in alone.values()], pool_bytes)):
        designs: dict[str, Design] = {}
        for name, model in models.items():
            design = fit_design(model.layers, page_tokens=model.page_tokens, large_page_bytes=large_page_bytes)
            if design is None:
                break
            designs[name] = design
        if len(designs) < len(models):
            continue
        waste = {name: expected_waste(models[name].layers, design) for name, design in designs.items()}
        if best is None or sum(waste.values()) < sum(best.waste.values()):
            best = Together(large_page_bytes, designs, waste, waste_alone)
    if best is None:
        raise ValueError("no common large page holds a layer of every model: give them pools of their own")
    return best


def fit_design(layers: Sequence[LayerSpec], *, page_tokens: int, large_page_bytes: int) -> Design | None:
    """The cut of a model's types with the least expected waste whose small pages divide a given large page; None where
    there is none within the bound on page tables."""
    own = choose_design(layers, page_tokens=page_tokens)
    if own.large_page_bytes == large_page_bytes:
        return own
    found = []
    if large_page_bytes % own.large_page_bytes == 0:
        found.append(replace(own, large_page_bytes=large_page_bytes))
    cut = _cut_to(layers, page_tokens, large_page_bytes)
    if cut is not None:
        found.append(cut)
    return min(found, key=lambda design: expected_waste(layers, design), default=None)


def fit_beside(
    layers: Sequence[LayerSpec], others: Sequence[LayerSpec], *, page_tokens: int
) -> tuple[Design, Design] | None:
    """The cut of a model and that of a smaller one beside it in one pool. The model's types are cut as they are
    without the other one, so that its steps cost the same; where no layer of the other one fits into its large pages,
    these are multiples of it. None where that is not enough either."""
    own = choose_design(layers, page_tokens=page_tokens)
    found = []
    for factor in _MULTIPLES:
        design = replace(own, large_page_bytes=factor * own.large_page_bytes)
        other = fit_design(others, page_tokens=page_tokens, large_page_bytes=design.large_page_bytes)
        if other is not None:
            found.append((design, other))
    return min(found, key=lambda pair: expected_waste(layers, pair[0]) + expected_waste(others, pair[1]), default=None)


def _cut_to(layers: Sequence[LayerSpec], page_tokens: int, large_page_bytes: int) -> Design | None:
    types = group_layers(layers, page_tokens=page_tokens)
    live = {length: live_bytes(layers, length) for length in CHAT_WEIGHTS}
    sizes = _divisors(large_page_bytes)
    table_cost = _TABLE_COST
    while table_cost < 1:
        parts: list[LayerType] = []
        for kind in types:
            cut = _best_cut(kind, large_page_bytes, sizes, live, table_cost)
            if cut is None:
                return None
            parts += cut
        if len(parts) <= MAX_PAGE_TABLES:
            return Design("chosen", tuple(parts), large_page_bytes)
        table_cost *= 4
    return None


def expected_waste(layers: Sequence[LayerSpec], design: Design) -> float:
    """Bytes held beyond the live ones, as a share of these, over the expected lengths of chats."""
    return sum(
        weight * (design.held_bytes(length) / live_bytes(layers, length) - 1) for length, weight in CHAT_WEIGHTS.items()
    )


def _best_cut(
    kind: LayerType, large_page_bytes: int, sizes: Sequence[int], live: Mapping[int, int], table_cost: float
) -> Sequence[LayerType] | None:
    """Parts of one type. Types do not compete for large pages, so each is cut by itself."""
    alignment = math.gcd(_ALIGNMENT, kind.layer_page_bytes)
    found: list[tuple[float, tuple[LayerType, ...]]] = []
    factors = (1,) if kind.spec.kind == "recurrent" else (1, 2, 4)
    for num_layers, factor in itertools.product(range(1, len(kind.layer_ids) + 1), factors):
        content = num_layers * kind.layer_page_bytes * factor
        size = next((size for size in sizes if size >= content and size % alignment == 0), None)
        if size is None:
            continue
        tokens = kind.page_tokens * factor
        parts = split_type(kind, num_layers, page_tokens=tokens, page_bytes=size)
        held = 0.0
        for length, weight in CHAT_WEIGHTS.items():
            num_large = -(-held_pages(parts[0], length) // (large_page_bytes // size)) * len(parts)
            held += weight * num_large * large_page_bytes / live[length]
        found.append((held + table_cost * len(parts), parts))
    return min(found, key=lambda entry: entry[0])[1] if found else None


def _candidates(own: Sequence[int], pool_bytes: int | None) -> set[int]:
    """Large pages that suit at least one model, and common multiples of several."""
    largest = _MAX_LARGE_PAGE_BYTES if pool_bytes is None else min(_MAX_LARGE_PAGE_BYTES, pool_bytes // 64)
    found = {size * factor for size in own for factor in _MULTIPLES}
    found |= {math.lcm(*pair) for pair in itertools.combinations(own, 2)} | {math.lcm(*own)}
    bounded = {size for size in found if size <= largest}
    return bounded or {min(own)}


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def report_lines(together: Together) -> Iterable[str]:
    """What sharing costs, in sentences with numbers."""
    for model, cost in together.cost.items():
        yield (
            f"{model}: expected waste {together.waste[model]:.1%} over live bytes, {together.waste_alone[model]:.1%} "
            f"in a pool of its own ({cost:+.1%})"
        )
