"""Finds the cut of all layer types that wastes least. Pure functions of numbers.

Every type may be cut into parts of equally many layers, with more tokens per page or padding, so that small pages get
equal sizes or small common multiples. The large page is the least common multiple of the small pages.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engine.memory.planning.designs import Design, held_pages, live_bytes
from engine.memory.planning.grouping import group_layers, large_page_bytes, split_type
from engine.memory.spec import LayerSpec

#: Expected share of requests of each length in tokens: chats are short.
CHAT_WEIGHTS = {100: 0.25, 500: 0.3, 2_000: 0.25, 8_000: 0.12, 32_000: 0.06, 128_000: 0.02}
#: Designs whose expected waste differs by less count as equal; the one with fewer page tables is chosen.
_SAME_WASTE = 0.0005
_MAX_SPLITS = 4096


@dataclass(frozen=True, slots=True)
class _Cut:
    """How one type is cut: parts of num_layers layers with page_tokens tokens, padded to page_bytes."""

    num_layers: int
    page_tokens: int
    page_bytes: int


class DesignSearch:
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
        """The cut with the least expected waste among those within the bound on page tables that are at no length worse
        than the lcm, gcd and equal-page designs. If there is none, the least waste within the bound."""
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
        """The reason for this design, in sentences with numbers."""
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
