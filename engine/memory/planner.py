"""From what each layer stores to the layout of the page pool. Pure functions of numbers; nothing is allocated.

The least common multiple of Jenga wastes most of a large page on a short request when layer counts have no common
divisor (Gemma-3-27B: twice the live bytes at 100 tokens), and chats are short. So the planner also considers parts of
types, padded pages and other tokens per page, and takes what wastes least over the expected lengths, with a bound on
the number of page tables, because every table costs work in every step.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engine.memory.admission import AdmissionRule
from engine.memory.designs import (
    Design,
    equal_page_design,
    gcd_design,
    held_pages,
    lcm_design,
    live_bytes,
    max_page_design,
)
from engine.memory.grouping import group_layers, large_page_bytes, split_type
from engine.memory.images import ImageSpan
from engine.memory.policies import policy_for
from engine.memory.spec import NUM_NULL_LARGE_PAGES, LayerSpec, LayerType, PoolPlan

__all__ = ["Capacity", "PlanReport", "choose_design", "group_layers", "large_page_bytes", "plan_pool", "pool_bytes_for"]

#: Lengths of requests at which waste is reported.
REPORT_LENGTHS = (100, 500, 2_000, 8_000, 32_000, 128_000)
#: How often a request of each of these lengths is expected: an arena's chats are short.
CHAT_WEIGHTS = {100: 0.25, 500: 0.3, 2_000: 0.25, 8_000: 0.12, 32_000: 0.06, 128_000: 0.02}
#: Page tables of one sequence. 72 serve Gemma-2-27B with its draft model in pages of one layer, the finest useful cut
#: in the layer tables.
MAX_PAGE_TABLES = 80
#: Tokens of one step that capacity figures assume: a window needs room for what a step adds to it.
STEP_TOKENS = 1024
#: Designs whose expected waste differs by less are equal; then fewer page tables win.
_SAME_WASTE = 0.0005
_MAX_SPLITS = 4096


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a pool of a given size holds, in the three units that people ask for."""

    pool_bytes: int
    num_large_pages: int  #: for requests; the null page is not counted
    num_pages: tuple[int, ...]  #: small pages per type, if that type had the whole pool
    num_tokens: int  #: of the longest single request, up to the model's context
    num_max_length_requests: int  #: requests of the model's full context at once


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A chosen design beside the ones it was chosen over."""

    layers: tuple[LayerSpec, ...]
    chosen: Design
    designs: dict[str, Design]  #: by name, `chosen` included
    reason: str
    lengths: tuple[int, ...]
    image_tokens: int

    def live(self, num_tokens: int) -> int:
        return live_bytes(self.layers, num_tokens, self.image_tokens)

    def held(self, name: str, num_tokens: int) -> int:
        return self.designs[name].held_bytes(num_tokens, self.image_tokens)

    def waste(self, name: str, num_tokens: int) -> float:
        """Bytes held beyond the live ones, as a share of the live ones."""
        return self.held(name, num_tokens) / self.live(num_tokens) - 1

    def capacity(self, pool_bytes: int, max_model_len: int, max_step_tokens: int = STEP_TOKENS) -> Capacity:
        plan = pool_of(self.chosen, pool_bytes)
        rule = AdmissionRule(plan, max_step_tokens)
        images = (ImageSpan(0, self.image_tokens, b"", self.image_tokens),) if self.image_tokens else ()
        return Capacity(
            pool_bytes=plan.pool_bytes,
            num_large_pages=plan.num_usable_large_pages,
            num_pages=tuple(plan.num_usable_large_pages * plan.ratio(kind) for kind in plan.types),
            num_tokens=rule.max_tokens(max_model_len, images),
            num_max_length_requests=rule.max_sequences(max_model_len, images),
        )


def plan_layers(
    layers: Sequence[LayerSpec],
    *,
    page_tokens: int,
    lengths: Sequence[int] = REPORT_LENGTHS,
    image_tokens: int = 0,
    max_page_tables: int = MAX_PAGE_TABLES,
) -> PlanReport:
    """Compare all designs at these lengths and choose one. Lengths other than the usual ones count alike."""
    if not lengths or min(lengths) < 1:
        raise ValueError("lengths must be positive numbers of tokens")
    alternatives = {
        design.name: design
        for design in (
            lcm_design(layers, page_tokens=page_tokens),
            gcd_design(layers, page_tokens=page_tokens),
            equal_page_design(layers, page_tokens=page_tokens),
            max_page_design(layers, page_tokens=page_tokens),
        )
    }
    search = _Search(layers, page_tokens, lengths, image_tokens, max_page_tables, alternatives)
    chosen = search.best()
    return PlanReport(
        layers=tuple(layers),
        chosen=chosen,
        designs={"chosen": chosen, **alternatives},
        reason=search.explain(chosen),
        lengths=tuple(lengths),
        image_tokens=image_tokens,
    )


def choose_design(layers: Sequence[LayerSpec], *, page_tokens: int) -> Design:
    """The design with the least expected waste for chats."""
    types = group_layers(layers, page_tokens=page_tokens)
    if len(types) == 1:
        return Design("chosen", types, types[0].small_page_bytes)
    return plan_layers(layers, page_tokens=page_tokens).chosen


def pool_of(design: Design, pool_bytes: int) -> PoolPlan:
    """A pool of at most `pool_bytes` in this design, the null page included.

    Raises ValueError where not even one large page would be left for requests.
    """
    num_large_pages = pool_bytes // design.large_page_bytes
    if num_large_pages <= NUM_NULL_LARGE_PAGES:
        needed = (NUM_NULL_LARGE_PAGES + 1) * design.large_page_bytes
        raise ValueError(f"a page pool of {pool_bytes} bytes is too small: this model needs at least {needed} bytes")
    return PoolPlan(design.types, design.large_page_bytes, num_large_pages)


def plan_pool(layers: Sequence[LayerSpec], *, page_tokens: int, pool_bytes: int) -> PoolPlan:
    """The chosen layout of a pool of at most `pool_bytes`, the null page included; ValueError where that is too
    little."""
    return pool_of(choose_design(layers, page_tokens=page_tokens), pool_bytes)


def pool_bytes_for(
    types: Sequence[LayerType], *, num_tokens: int, num_sequences: int = 1, max_step_tokens: int | None = None
) -> int:
    """Bytes of the smallest pool in which that many sequences of that length fit at once, null page included.

    max_step_tokens: most tokens of a sequence that one step computes; unknown, a window keeps everything.
    """
    page_bytes = large_page_bytes(types)
    num_large_pages = NUM_NULL_LARGE_PAGES
    for layer_type in types:
        num_small_pages = num_sequences * policy_for(layer_type, max_step_tokens).num_pages(num_tokens)
        num_large_pages += -(-num_small_pages * layer_type.small_page_bytes // page_bytes)
    return num_large_pages * page_bytes


@dataclass(frozen=True, slots=True)
class _Cut:
    """How one type is cut: parts of num_layers layers with page_tokens tokens, padded to page_bytes."""

    num_layers: int
    page_tokens: int
    page_bytes: int


class _Search:
    """Tries cuts of all types together. A cut is evaluated with a few multiplications per type and length."""

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        page_tokens: int,
        lengths: Sequence[int],
        image_tokens: int,
        max_page_tables: int,
        alternatives: dict[str, Design],
    ) -> None:
        self._types = group_layers(layers, page_tokens=page_tokens)
        self._lengths = lengths
        self._image_tokens = image_tokens
        self._max_page_tables = max_page_tables
        self._alternatives = alternatives
        self._live = [live_bytes(layers, length, image_tokens) for length in lengths]
        is_usual = set(lengths) <= set(CHAT_WEIGHTS)
        weights = [CHAT_WEIGHTS[length] if is_usual else 1.0 for length in lengths]
        self._weights = [weight / sum(weights) for weight in weights]
        self._pages: dict[tuple[int, int], list[int]] = {}

    def best(self) -> Design:
        """Least expected waste among the cuts within the bound that are at no length worse than LCM, gcd and equal
        pages. Where there is none, the bound on page tables weighs more than a length."""
        rivals = [
            [self._alternatives[name].held_bytes(length, self._image_tokens) for length in self._lengths]
            for name in ("lcm", "gcd", "equal_page")
        ]
        ceiling = [min(column) for column in zip(*rivals, strict=True)]
        found: list[tuple[bool, float, int, tuple[_Cut, ...]]] = []
        for cuts in self._candidates():
            num_tables = self._num_tables(cuts)
            if num_tables > self._max_page_tables:
                continue
            held = self._held(cuts)
            is_worse = any(mine > best for mine, best in zip(held, ceiling, strict=True))
            found.append((is_worse, self._expected_waste(held), num_tables, cuts))
        assert found, "whole types are always a candidate"
        least = min(found, key=lambda entry: entry[:3])
        similar = [entry for entry in found if entry[0] == least[0] and entry[1] <= least[1] + _SAME_WASTE]
        _, _, _, cuts = min(similar, key=lambda entry: (entry[2], entry[1]))
        types = tuple(
            part
            for layer_type, cut in zip(self._types, cuts, strict=True)
            for part in split_type(layer_type, cut.num_layers, page_tokens=cut.page_tokens, page_bytes=cut.page_bytes)
        )
        return Design("chosen", types, large_page_bytes(types))

    def explain(self, chosen: Design) -> str:
        """Why this design, in sentences with numbers."""
        wastes = {
            name: self._expected_waste([design.held_bytes(length, self._image_tokens) for length in self._lengths])
            for name, design in {"chosen": chosen, **self._alternatives}.items()
        }
        if len(self._types) == 1 and chosen.num_page_tables == 1:
            shape = "All layers store the same, so there is one type and small pages are large pages."
        elif all(chosen.ratio(kind) == 1 for kind in chosen.types):
            shape = (
                f"The {len(self._types)} types are cut into {chosen.num_page_tables} parts with small pages of equal "
                f"size ({chosen.large_page_bytes} bytes), so that no request leaves part of a large page empty"
            )
            padding = sum(kind.padding_bytes for kind in chosen.types)
            share = padding / (chosen.num_page_tables * chosen.large_page_bytes)
            shape += f"; padding takes {share:.1%} of them." if padding else "."
        else:
            shape = (
                f"{chosen.num_page_tables} page tables over large pages of {chosen.large_page_bytes} bytes: an equal "
                f"size for all would cost more padding or more tables than large pages left partly empty."
            )
        others = ", ".join(f"{name} {wastes[name]:.1%}" for name in self._alternatives)
        return (
            f"{shape} Expected waste over live bytes {wastes['chosen']:.1%} (others: {others}), with at most "
            f"{self._max_page_tables} page tables per sequence."
        )

    def _candidates(self) -> Iterator[tuple[_Cut, ...]]:
        yield tuple(_Cut(len(kind.layer_ids), kind.page_tokens, kind.small_page_bytes) for kind in self._types)
        yield from self._equal_cuts()
        yield from self._divisor_cuts()

    def _equal_cuts(self) -> Iterator[tuple[_Cut, ...]]:
        """One small page size for all parts, which is then the large page: as many layers to a part as fit in."""
        sizes = {
            num_layers * kind.layer_page_bytes
            for kind in self._types
            for num_layers in range(1, len(kind.layer_ids) + 1)
        }
        for size in sizes:
            if any(kind.layer_page_bytes > size for kind in self._types):
                continue
            plain, grown = [], []
            for kind in self._types:
                num_layers = min(len(kind.layer_ids), size // kind.layer_page_bytes)
                num_layers = -(-len(kind.layer_ids) // -(-len(kind.layer_ids) // num_layers))
                plain.append(_Cut(num_layers, kind.page_tokens, size))
                factor = 1
                while kind.spec.kind != "recurrent" and num_layers * kind.layer_page_bytes * factor * 2 <= size:
                    factor *= 2
                grown.append(_Cut(num_layers, kind.page_tokens * factor, size))
            yield tuple(plain)
            if grown != plain:
                yield tuple(grown)

    def _divisor_cuts(self) -> Iterator[tuple[_Cut, ...]]:
        """Every type in parts of equally many layers; the large page is the least common multiple."""
        choices = [_divisors(len(kind.layer_ids)) for kind in self._types]
        if math.prod(map(len, choices)) > _MAX_SPLITS:
            choices = [[1, len(kind.layer_ids)] for kind in self._types]
        for combination in itertools.islice(itertools.product(*choices), _MAX_SPLITS):
            yield tuple(
                _Cut(num_layers, kind.page_tokens, num_layers * kind.layer_page_bytes)
                for num_layers, kind in zip(combination, self._types, strict=True)
            )

    def _num_tables(self, cuts: tuple[_Cut, ...]) -> int:
        return sum(-(-len(kind.layer_ids) // cut.num_layers) for kind, cut in zip(self._types, cuts, strict=True))

    def _held(self, cuts: tuple[_Cut, ...]) -> list[int]:
        large = math.lcm(*(cut.page_bytes for cut in cuts))
        total = [0] * len(self._lengths)
        for which, (kind, cut) in enumerate(zip(self._types, cuts, strict=True)):
            ratio = large // cut.page_bytes
            num_parts = -(-len(kind.layer_ids) // cut.num_layers)
            for index, pages in enumerate(self._pages_of(which, cut.page_tokens)):
                total[index] += -(-pages // ratio) * num_parts
        return [num_large * large for num_large in total]

    def _pages_of(self, which: int, page_tokens: int) -> list[int]:
        pages = self._pages.get((which, page_tokens))
        if pages is None:
            kind = replace(self._types[which], page_tokens=page_tokens)
            pages = [held_pages(kind, length, self._image_tokens) for length in self._lengths]
            self._pages[which, page_tokens] = pages
        return pages

    def _expected_waste(self, held: Sequence[int]) -> float:
        wastes = (mine / live - 1 for mine, live in zip(held, self._live, strict=True))
        return sum(weight * waste for weight, waste in zip(self._weights, wastes, strict=True))


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
