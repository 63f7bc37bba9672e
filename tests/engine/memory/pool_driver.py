"""Uses the page cache as a scheduler does, and models what each sequence's pages must contain."""

from collections.abc import Sequence
from typing import Protocol

from engine.memory.growth import Extension
from engine.memory.kv_cache import KVCache
from engine.memory.ledger import picture, take_ledger
from engine.memory.planning.designs import Design
from engine.memory.planning.grouping import group_layers, large_page_bytes
from engine.memory.spec import NULL_PAGE, LayerSpec, PoolPlan

PAGE_TOKENS = 4
#: Mixes of layer types by the ratios of small pages in a large page.
MIXES = {
    "1": (LayerSpec("full", 8, "bfloat16"),) * 3,
    "3 : 2": (LayerSpec("full", 16, "bfloat16"), LayerSpec("full", 24, "float32")),
    "1 : 5": (LayerSpec("full", 40, "bfloat16"), LayerSpec("full", 8, "bfloat16")),
    "2 : 3 : 6": (
        LayerSpec("full", 24, "bfloat16"),
        LayerSpec("full", 16, "bfloat16"),
        LayerSpec("full", 8, "bfloat16", model="draft"),
    ),
}


def plan_of(layers: Sequence[LayerSpec], num_pages: int, page_tokens: int = PAGE_TOKENS) -> PoolPlan:
    """A pool of that many large pages, not counting the null page."""
    types = group_layers(layers, page_tokens=page_tokens)
    return PoolPlan(types, large_page_bytes(types), num_pages + 1)


class MakeDesign(Protocol):
    """lcm_design and its rivals."""

    def __call__(self, layers: Sequence[LayerSpec], *, page_tokens: int) -> Design: ...


def extended(cache: KVCache, sequence: int, start: int, end: int) -> Extension:
    """What the cache changed to hold positions [start, end), for which there must be room."""
    extension = cache.extend(sequence, start, end)
    assert extension is not None
    return extension


class PoolDriver:
    """Sequences are numbered in the order of their start. Every operation ends with a check of all pages."""

    def __init__(self, mix: str, num_pages: int, *, enable_prefix_caching: bool) -> None:
        self.cache = KVCache(plan_of(MIXES[mix], num_pages), enable_prefix_caching=enable_prefix_caching)
        self.tokens: dict[int, list[int]] = {}
        self.num_filled: dict[int, int] = {}
        self.requests: dict[int, int] = {}
        self._num_started = 0
        self._step = 0
        #: What the device would hold: (type, page, offset) -> the tokens up to and with that position.
        self._memory: dict[tuple[int, int, int], tuple[int, ...] | None] = {}

    def start(self, tokens: Sequence[int], salt: bytes = b"") -> int:
        """A new sequence; it may find no room and stay without pages."""
        sequence = self._new(list(tokens), self._num_started)
        self.cache.open(sequence, sequence, salt)
        self.admit(sequence)
        return sequence

    def admit(self, sequence: int) -> None:
        """Give a sequence without pages its cached prefix and room for all its tokens, if they fit."""
        tokens = self.tokens[sequence]
        if self.cache.page_table(sequence)[0]:
            return
        matched = self.cache.match(sequence, tokens, len(tokens) - 1)
        before = take_ledger(self.cache)
        num_hit = self.cache.admit(sequence, tokens, len(tokens) - 1, [len(tokens)])
        if num_hit is None:
            assert matched or not self.cache.is_unused or not self.cache.rule.fits_ever([len(tokens)])
            assert take_ledger(self.cache) == before
        else:
            assert num_hit == matched <= len(tokens) - 1
            self.num_filled[sequence] = num_hit
            self._check_content(sequence)
            assert self._extend(sequence), "it was admitted with room for all its tokens"
        self.check()

    def grow(self, sequence: int, more: Sequence[int]) -> None:
        self.tokens[sequence] += more
        self._extend(sequence)
        self.check()

    def fork(self, source: int) -> int:
        target = self._new([*self.tokens[source][: self.num_filled[source]], 1], self.requests[source])
        self.cache.open(target, self.requests[target])
        self.cache.fork(source, target)
        self.num_filled[target] = self.num_filled[source]
        self.check()
        return target

    def preempt(self, sequence: int) -> None:
        self.cache.free(sequence)
        self.num_filled[sequence] = 0
        self.check()

    def close(self, sequence: int) -> None:
        self.cache.close(sequence)
        del self.tokens[sequence], self.num_filled[sequence]
        request = self.requests.pop(sequence)
        if request not in self.requests.values():
            self.cache.end_request(request)
        self.check()

    def next_step(self) -> None:
        self._step += 1
        self.cache.begin_step(self._step)

    def close_all(self) -> None:
        """Close all sequences; every page must be available again."""
        for sequence in list(self.tokens):
            self.close(sequence)
        assert self.cache.is_unused
        num_pages = self.cache.plan.num_usable_large_pages
        assert self.cache.large_pool.num_available == num_pages
        if not self.cache.enable_prefix_caching:
            assert self.cache.large_pool.num_empty == num_pages

    def check(self) -> None:
        self.cache.check_integrity()
        ledger = take_ledger(self.cache)
        accounted = ledger.used_bytes + ledger.evictable_bytes + ledger.empty_in_large_bytes
        assert accounted + ledger.empty_bytes + ledger.null_bytes == ledger.pool_bytes
        assert 0 <= ledger.tail_waste_bytes <= ledger.used_bytes
        cells = picture(self.cache, max_cells=3)
        assert len(cells) <= 3
        assert all(0 <= cell.used + cell.evictable <= 1.000001 for cell in cells)

    def _new(self, tokens: list[int], request: int) -> int:
        sequence = self._num_started
        self._num_started += 1
        self.tokens[sequence], self.num_filled[sequence], self.requests[sequence] = tokens, 0, request
        return sequence

    def _extend(self, sequence: int) -> bool:
        """The operations of a step: allocate, copy, write, publish."""
        start, end = self.num_filled[sequence], len(self.tokens[sequence])
        before = self.cache.page_table(sequence)
        extension = self.cache.extend(sequence, start, end)
        if extension is None:
            assert self.cache.page_table(sequence) == before
            return False
        told = [list(pages) for pages in before]
        for change in extension.changes:
            told[change.layer_type][change.start : change.start + len(change.pages)] = change.pages
        table = self.cache.page_table(sequence)
        assert [tuple(pages) for pages in told] == table, "what was returned is what changed"
        for copy in extension.copies:
            for offset in range(PAGE_TOKENS):
                self._memory[copy.layer_type, copy.dst, offset] = self._memory.get((copy.layer_type, copy.src, offset))
        for which, pages in enumerate(table):
            for position in range(start, end):
                page = pages[position // PAGE_TOKENS]
                assert self.cache.pools[which].ref_counts[page] == 1, "a shared page is written"
                self._memory[which, page, position % PAGE_TOKENS] = tuple(self.tokens[sequence][: position + 1])
        self.cache.advance(sequence, self.tokens[sequence], end)
        self.num_filled[sequence] = end
        self._check_content(sequence)
        return True

    def _check_content(self, sequence: int) -> None:
        for which, pages in enumerate(self.cache.page_table(sequence)):
            assert NULL_PAGE not in pages
            for position in range(self.num_filled[sequence]):
                content = self._memory[which, pages[position // PAGE_TOKENS], position % PAGE_TOKENS]
                assert content == tuple(self.tokens[sequence][: position + 1]), "a page holds something else"
