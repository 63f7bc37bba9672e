"""Random operations on random mixes of layers; every page accounted for after each, every hit as the twin says.

AGON_SOAK=1 runs 5,000 x 100 instead of 200 x 50.
"""

import os
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.memory.images import Images, ImageSpan
from engine.memory.kv_cache import KVCache
from engine.memory.ledger import take_ledger
from engine.memory.planning.designs import equal_page_design, gcd_design, lcm_design
from engine.memory.spec import IMAGE_KINDS, LayerSpec, PoolPlan
from engine.memory.swap import MirrorPool
from tests.engine.memory.pool_driver import MakeDesign
from tests.engine.memory.twin import Content, Twin

PAGE_TOKENS = 4
MAX_TOKENS = 40
MAX_STEP_TOKENS = 12

LAYERS = st.one_of(
    st.builds(LayerSpec, st.just("full"), st.sampled_from([4, 8, 12]), st.just("bf16"), st.sampled_from(["a", "b"])),
    st.builds(LayerSpec, st.just("window"), st.just(4), st.just("bf16"), span=st.sampled_from([1, 3, 8, 13])),
    st.builds(LayerSpec, st.just("chunked"), st.just(4), st.just("bf16"), span=st.sampled_from([8, 16])),
    st.builds(LayerSpec, st.just("recurrent"), st.sampled_from([16, 48]), st.just("bf16"), span=st.just(8)),
    st.builds(LayerSpec, st.just("cross"), st.just(4), st.just("bf16")),
    st.builds(LayerSpec, st.just("vision"), st.just(8), st.just("bf16")),
)
BUDGETED = st.builds(LayerSpec, st.just("budgeted"), st.just(4), st.just("bf16"), span=st.sampled_from([6, 12]))
MIXES = st.one_of(
    st.lists(LAYERS, min_size=1, max_size=5),
    st.lists(LAYERS, min_size=1, max_size=3).map(  # every type twice: they are in lockstep
        lambda layers: [*layers, *(replace(layer, model="draft") for layer in layers)]
    ),
    st.lists(st.one_of(LAYERS, BUDGETED), min_size=1, max_size=4),
).filter(lambda layers: any(layer.kind not in ("cross", "vision") for layer in layers))
DESIGNS = st.sampled_from([lcm_design, lcm_design, gcd_design, equal_page_design])

#: Prompts share beginnings: a stem and a few endings.
STEMS = ([1] * 40, [2, 1] * 20, list(range(40)))
IMAGES = (
    (),
    (),
    (ImageSpan(2, 6, b"cat", 5),),
    (ImageSpan(2, 6, b"cat", 5), ImageSpan(9, 9, b"dog", 3)),
    (ImageSpan(5, 9, b"dog", 3),),
)


class PageCacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tokens: dict[int, list[int]] = {}  # by sequence: as many as are or will be computed
        self.filled: dict[int, int | None] = {}  # None: it has no pages
        self.request: dict[int, int] = {}
        self.images: dict[int, Images] = {}
        self.away: dict[int, list[int]] = {}  # by request: its sequences that are swapped out
        self.host: dict[tuple[int, int], Content] = {}  # by type and page of the mirror
        #: By type and page freed by its last sequence: the newest step that may still touch it.
        self.freed: dict[tuple[int, int], int] = {}
        self.step = 0  # the newest step; [ended + 1, launched] are in flight
        self.launched = 0
        self.ended = 0
        self.next_id = 0

    @initialize(
        layers=MIXES,
        make=DESIGNS,
        num_pages=st.integers(3, 40),
        num_mirror_pages=st.integers(1, 20),
        max_in_flight=st.sampled_from([0, 1, 2, 3]),
    )
    def make_pool(
        self, layers: list[LayerSpec], make: MakeDesign, num_pages: int, num_mirror_pages: int, max_in_flight: int
    ) -> None:
        if make is equal_page_design and any(layer.kind in ("recurrent", "vision", "budgeted") for layer in layers):
            make = lcm_design  # its types are not these layers'
        design = make(layers, page_tokens=PAGE_TOKENS)
        plan = PoolPlan(design.types, design.large_page_bytes, num_pages + 1)
        self.cache = KVCache(plan, max_step_tokens=MAX_STEP_TOKENS)
        self.max_in_flight = max_in_flight
        self.twin = Twin(self.cache)
        self.mirror = MirrorPool(PoolPlan(design.types, design.large_page_bytes, num_mirror_pages + 1))

    def pick(self, data: st.DataObject, chosen: Iterable[int]) -> int:
        return data.draw(st.sampled_from(sorted(chosen)))

    def num_filled(self, sequence: int) -> int:
        filled = self.filled[sequence]
        assert filled is not None
        return filled

    def idle(self) -> list[int]:
        return [sequence for sequence in self.tokens if self.filled[sequence] is None]

    def active(self) -> list[int]:
        is_away = {sequence for group in self.away.values() for sequence in group}
        return [sequence for sequence in self.tokens if self.filled[sequence] is not None and sequence not in is_away]

    def here(self) -> list[int]:
        return self.idle() + self.active()

    @rule(
        stem=st.sampled_from(STEMS), shared=st.integers(0, 36), ending=st.integers(0, 3), images=st.sampled_from(IMAGES)
    )
    @precondition(lambda self: len(self.tokens) < 8)
    def open(self, stem: list[int], shared: int, ending: int, images: Images) -> None:
        sequence, self.next_id = self.next_id, self.next_id + 1
        self.tokens[sequence] = (stem[:shared] + [50 + ending] * MAX_TOKENS)[:MAX_TOKENS]
        self.filled[sequence], self.request[sequence], self.images[sequence] = None, sequence, images
        self.cache.open(sequence, sequence, images=images)

    @rule(data=st.data(), stem=st.sampled_from(STEMS), ending=st.integers(0, 3), num_steps=st.integers(0, 4))
    @precondition(lambda self: len(self.tokens) < 8)
    def serve(self, data: st.DataObject, stem: list[int], ending: int, num_steps: int) -> None:
        """The common path; with the other rules alone few sequences would compute anything."""
        self.open(stem, 7, ending, ())
        self.admit(data, MAX_TOKENS - 1, MAX_STEP_TOKENS)
        for _ in range(num_steps if self.active() else 0):
            self.compute(data, MAX_STEP_TOKENS // 2)

    @rule(data=st.data(), limit=st.integers(0, MAX_TOKENS - 1), wanted=st.integers(1, MAX_TOKENS))
    @precondition(lambda self: self.idle())
    def admit(self, data: st.DataObject, limit: int, wanted: int) -> None:
        sequence = self.pick(data, self.idle())
        tokens, images = self.tokens[sequence], self.images[sequence]
        expected = self.twin.longest_hit(tokens, images, limit)
        assert self.cache.match(sequence, tokens, limit) == expected
        hit = self.cache.admit(sequence, tokens, limit, [wanted])
        assert hit in (None, expected)
        self.filled[sequence] = hit

    @rule(data=st.data(), num_tokens=st.integers(1, MAX_STEP_TOKENS))
    @precondition(lambda self: self.active())
    def compute(self, data: st.DataObject, num_tokens: int) -> None:
        sequence = self.pick(data, self.active())
        tokens, start = self.tokens[sequence], self.num_filled(sequence)
        end = self.cache.chunk_end(start, min(start + num_tokens, MAX_TOKENS))
        if end <= start:
            return
        before = self.cache.page_table(sequence)
        extension = self.cache.extend(sequence, start, end)
        if extension is None:
            assert self.cache.page_table(sequence) == before
            return
        after = [list(pages) for pages in before]
        for change in extension.changes:
            if self.cache.plan.types[change.layer_type].spec.kind not in IMAGE_KINDS:  # these may be cached, not new
                touched = [self.freed.get((change.layer_type, page), 0) for page in change.pages]
                assert max(touched) <= self.ended, "a step in flight may still touch it"
            after[change.layer_type][change.start : change.start + len(change.pages)] = change.pages
        assert [tuple(pages) for pages in after] == self.cache.page_table(sequence)
        self.twin.copy(extension)
        self.twin.write(sequence, tokens, self.images[sequence], start, end)
        self.cache.advance(sequence, tokens, end)
        self.filled[sequence] = end

    @rule(data=st.data(), ending=st.integers(4, 6))
    @precondition(lambda self: self.active() and len(self.tokens) < 8)
    def fork(self, data: st.DataObject, ending: int) -> None:
        source = self.pick(data, self.active())
        target, self.next_id = self.next_id, self.next_id + 1
        filled = self.num_filled(source)
        self.tokens[target] = (self.tokens[source][:filled] + [60 + ending] * MAX_TOKENS)[:MAX_TOKENS]
        self.filled[target], self.request[target] = filled, self.request[source]
        self.images[target] = self.images[source]
        self.cache.open(target, self.request[target], images=self.images[target])
        self.cache.fork(source, target)

    @rule(data=st.data())
    @precondition(lambda self: self.active())
    def preempt(self, data: st.DataObject) -> None:
        sequence = self.pick(data, self.active())
        self.note_freed(sequence)
        self.cache.free(sequence)
        self.filled[sequence] = None
        self.cache.end_request(self.request[sequence])

    @rule(data=st.data())
    @precondition(lambda self: any(self.request[sequence] not in self.away for sequence in self.active()))
    def swap_out(self, data: st.DataObject) -> None:
        free = [sequence for sequence in self.active() if self.request[sequence] not in self.away]
        request = self.request[self.pick(data, free)]
        group = [sequence for sequence in free if self.request[sequence] == request]
        moves = self.mirror.swap_out(request, [self.cache.page_table(sequence) for sequence in group])
        if moves is None:
            return
        for move in moves:
            content = self.twin.memory[move.layer_type].get(move.device_page, {})
            assert (move.layer_type, move.host_page) not in self.host
            self.host[move.layer_type, move.host_page] = dict(content)
        for sequence in group:
            self.note_freed(sequence)
            self.cache.suspend(sequence)
        self.cache.end_request(request)
        self.away[request] = group

    @rule(data=st.data())
    @precondition(lambda self: self.away)
    def swap_in(self, data: st.DataObject) -> None:
        request = self.pick(data, self.away)
        group = self.away[request]
        before = take_ledger(self.cache)
        lengths = [min(MAX_TOKENS, self.num_filled(sequence) + 1) for sequence in group]
        tables = self.cache.resume(group, self.mirror.tables(request), lengths)
        if tables is None:
            assert take_ledger(self.cache) == before
            return
        for move in self.mirror.swap_in(request, tables):
            content = self.host.pop((move.layer_type, move.host_page))
            self.twin.memory[move.layer_type][move.device_page] = content
        del self.away[request]

    @rule(data=st.data())
    @precondition(lambda self: self.away)
    def abort_swapped_out(self, data: st.DataObject) -> None:
        request = self.pick(data, self.away)
        self.drop(request)
        for sequence in self.away.pop(request):
            self.finish_one(sequence)

    def drop(self, request: int) -> None:
        for table in self.mirror.tables(request):
            for which, pages in enumerate(table):
                for page in pages:
                    self.host.pop((which, page), None)
        self.mirror.drop(request)

    @rule(data=st.data())
    @precondition(lambda self: self.here())
    def finish(self, data: st.DataObject) -> None:
        self.finish_one(self.pick(data, self.here()))

    def finish_one(self, sequence: int) -> None:
        self.note_freed(sequence)
        self.cache.close(sequence)
        request = self.request.pop(sequence)
        del self.tokens[sequence], self.filled[sequence], self.images[sequence]
        if request not in self.request.values():
            self.cache.end_request(request)

    def note_freed(self, sequence: int) -> None:
        for which, pages in enumerate(self.cache.page_table(sequence)):
            self.freed.update({(which, page): self.launched for page in pages})

    @rule()
    @precondition(lambda self: self.step == self.launched or self.max_in_flight == 0)
    def next_step(self) -> None:
        self.step += 1
        self.cache.begin_step(self.step)

    @rule()
    @precondition(lambda self: self.step > self.launched and self.launched - self.ended < self.max_in_flight)
    def launch(self) -> None:
        self.launched = self.step
        self.cache.note_launch(self.step)

    @rule()
    @precondition(lambda self: self.ended < self.launched)
    def end_oldest(self) -> None:
        self.ended += 1
        self.cache.note_end(self.ended)

    def end_all(self) -> None:
        while self.ended < self.launched:
            self.end_oldest()

    @rule()
    @precondition(lambda self: self.tokens and not self.active() and not self.away)
    def what_fits_ever_fits_an_unused_pool(self) -> None:
        self.end_all()
        assert self.cache.is_unused
        longest = self.cache.rule.max_tokens(MAX_TOKENS)
        assert longest == 0 or self.cache.rule.large_pages(self.cache.rule.needs([longest])) <= (
            self.cache.large_pool.num_available
        )

    @invariant()
    def every_page_is_accounted_for(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.cache.check_integrity()
        self.mirror.check_integrity()
        ledger = take_ledger(self.cache)
        assert ledger.tail_waste_bytes + ledger.padding_bytes <= ledger.used_bytes

    def teardown(self) -> None:
        if not hasattr(self, "cache"):
            return
        for request in self.away:
            self.drop(request)
        assert self.mirror.used_bytes == 0
        assert not self.host
        for sequence in list(self.tokens):
            self.cache.close(sequence)
        for request in set(self.request.values()):
            self.cache.end_request(request)
        self.end_all()
        assert self.cache.is_unused
        self.cache.check_integrity()


_IS_SOAK = os.environ.get("AGON_SOAK") == "1"
TestPageCache = PageCacheMachine.TestCase
TestPageCache.settings = settings(
    max_examples=5000 if _IS_SOAK else 200,
    stateful_step_count=100 if _IS_SOAK else 50,
    deadline=None,
    derandomize=not _IS_SOAK,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes; to debug, add Phase.shrink
    report_multiple_bugs=False,
    database=None,
)
