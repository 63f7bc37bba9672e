"""What vLLM's tests of Mamba checkpoints pin (test_mamba_align_chunk_split.py, test_partial_prefix_cache_hits.py), in
our terms: a cached state is always the one behind the tokens that its name says."""

from collections.abc import Iterable

import pytest

from engine.memory.kv_cache import KVCache
from engine.memory.spec import NULL_PAGE, LayerSpec
from tests.engine.memory.peers.cache_user import cache_of, end, find, go_on, start
from tests.engine.memory.pool_driver import extended

FULL = LayerSpec("full", 4, "bf16")
STATE = LayerSpec("recurrent", 64, "bf16", span=1600)


class States:
    """The states as a model would compute them: how many tokens each page of the recurrent type has behind it."""

    def __init__(self, cache: KVCache, which: int) -> None:
        self.cache, self.which = cache, which
        self.tokens_in: dict[int, int] = {}

    def step(self, sequence: int, text: list[int], position: int, num_tokens: int) -> int:
        """One step of at most so many tokens; returns where it ended."""
        stop = self.cache.chunk_end(position, min(position + num_tokens, len(text)))
        extension = extended(self.cache, sequence, position, stop)
        for copy in extension.copies:
            if copy.layer_type == self.which:
                self.tokens_in[copy.dst] = self.tokens_in[copy.src]
        page = self.cache.page_table(sequence)[self.which][position // 1600]
        assert self.tokens_in.get(page, 0) == position or position == 0, "the step goes on from another state"
        self.tokens_in[page] = stop
        self.cache.advance(sequence, text, stop)
        return stop

    def prefill(self, sequence: int, text: list[int], budgets: Iterable[int], position: int = 0) -> None:
        rest = iter(budgets)
        while position < len(text):
            position = self.step(sequence, text, position, next(rest, len(text)))

    def check(self, text: list[int]) -> int:
        """Every state that is found is the one behind so many tokens."""
        num_found = 0
        for num_tokens in range(1600, len(text) + 1, 1600):
            self.cache.open(99, 99)
            if self.cache.admit(99, [*text[:num_tokens], -1], num_tokens, [num_tokens]) == num_tokens:
                assert self.tokens_in[self.cache.page_table(99)[self.which][-1]] == num_tokens
                num_found += 1
            self.cache.close(99)
        return num_found


def states() -> States:
    cache = cache_of(FULL, STATE, num_pages=800, page_tokens=16, max_step_tokens=30_000)
    return States(cache, 1)


@pytest.mark.parametrize(
    ("num_tokens", "budgets"),
    [
        (2002, [364, 2002]),
        (3602, [1600, 1000, 3602]),
        (2002, [800]),
        (2002, [900, 2002, 2002]),
        (2002, [1599, 1, 1]),
        (2002, [1601]),
        (9000, [7, 5000, 13, 1700, 2]),
    ],
)
def test_however_a_prompt_is_cut_into_steps_no_state_has_a_wrong_name(num_tokens: int, budgets: list[int]) -> None:
    model = states()
    text = list(range(num_tokens))
    model.cache.open(0, 0)
    model.cache.admit(0, text, 0, [num_tokens])
    model.prefill(0, text, budgets)
    assert model.check(text) == num_tokens // 1600
    model.cache.check_integrity()


@pytest.mark.parametrize("start_at", [331, 1599, 1600, 1601, 2531, 3011])
def test_no_step_runs_across_a_checkpoint_wherever_it_starts(start_at: int) -> None:
    cache = states().cache
    position, ends = start_at, []
    while position < 3602:
        position = cache.chunk_end(position, 3602)
        ends.append(position)
    assert all(stop % 1600 == 0 for stop in ends[:-1])
    assert ends[-1] == 3602


def test_a_checkpoint_is_resumed_in_a_page_of_its_own() -> None:
    model = states()
    text = list(range(3300))
    model.cache.open(0, 0)
    model.cache.admit(0, text, 0, [3300])
    model.prefill(0, text, [])
    model.cache.open(1, 1)
    other = [*text[:3200], *[7] * 100]
    assert model.cache.admit(1, other, 3299, [3300]) == 3200
    checkpoint = model.cache.page_table(1)[1][-1]
    model.prefill(1, other, [], position=3200)
    assert model.tokens_in[checkpoint] == 3200, "the cached state itself was written"
    assert model.check(text) == 2


def test_generating_takes_no_new_page_between_checkpoints_and_never_holds_more_than_two() -> None:
    cache = cache_of(LayerSpec("recurrent", 64, "bf16", span=8), num_pages=100, page_tokens=4)
    text = [1] * 5
    start(cache, 0, text)
    num_tables = []
    for token in range(40):
        text.append(token)
        go_on(cache, 0, text, len(text) - 1)
        num_tables.append(len(cache.page_table(0)[0]))
        assert cache.pools[0].num_used <= 2
    assert num_tables == [-(-length // 8) for length in range(6, 46)]


def test_every_checkpoint_of_a_shared_text_is_kept_until_room_is_needed() -> None:
    """vLLM keeps only the last one by default, which no text that differs earlier can use."""
    cache = cache_of(FULL, LayerSpec("recurrent", 16, "bf16", span=8), num_pages=200)
    article = list(range(100, 132))
    start(cache, 0, [*article, *[1] * 20])
    end(cache, 0)
    assert find(cache, article) == 32
    assert find(cache, article[:20]) == 16
    assert find(cache, article[:7]) == 0


def test_a_hit_needs_one_state_and_nothing_before_it() -> None:
    cache = cache_of(FULL, LayerSpec("recurrent", 16, "bf16", span=8), num_pages=60)
    text = list(range(24))
    start(cache, 0, text)
    assert start(cache, 1, [*text, 5]) == 24
    states_of = cache.page_table(1)[1]
    assert states_of[:2] == (NULL_PAGE, NULL_PAGE)
    cache.check_integrity()


def test_both_states_of_a_layer_are_restored_together() -> None:
    conv = LayerSpec("recurrent", 16, "bf16", span=8, part="conv")
    ssm = LayerSpec("recurrent", 48, "bf16", span=8, part="ssm")
    cache = cache_of(conv, ssm, num_pages=60)
    text = list(range(24))
    start(cache, 0, text)
    cache.open(1, 1)
    assert cache.admit(1, [*text, 5, 6], 25, [26]) == 24
    copies = extended(cache, 1, 24, 26).copies
    assert [copy.layer_type for copy in copies] == [0, 1]
    assert [copy.src for copy in copies] == [table[2] for table in cache.page_table(1)]
    assert [copy.dst for copy in copies] == [table[3] for table in cache.page_table(1)]
