"""The order of eviction: first pages that running sequences no longer read, then whole conversations by age."""

from collections.abc import Sequence

from engine.memory.kv_cache import KVCache
from engine.memory.planning.designs import lcm_design
from engine.memory.spec import LayerSpec, PoolPlan
from tests.engine.memory.pool_driver import extended

FULL, WINDOW = LayerSpec("full", 4, "bf16"), LayerSpec("window", 4, "bf16", span=9)
STATE = LayerSpec("recurrent", 16, "bf16", span=8)


def cache_of(*layers: LayerSpec, num_pages: int) -> KVCache:
    design = lcm_design(layers, page_tokens=4)
    return KVCache(PoolPlan(design.types, design.large_page_bytes, num_pages + 1), max_step_tokens=8)


def serve(cache: KVCache, sequence: int, tokens: Sequence[int], step: int) -> int:
    """Compute a whole sequence and end it; returns the number of its cached tokens."""
    cache.begin_step(step)
    cache.open(sequence, sequence)
    hit = cache.admit(sequence, tokens, len(tokens) - 1, [1])
    assert hit is not None
    start = hit
    while start < len(tokens):
        end = cache.chunk_end(start, min(start + 8, len(tokens)))
        assert cache.extend(sequence, start, end) is not None
        cache.advance(sequence, tokens, end)
        start = end
    cache.close(sequence)
    cache.end_request(sequence)
    cache.check_integrity()
    return hit


def test_the_oldest_conversation_goes_first_and_the_youngest_stays_whole() -> None:
    cache = cache_of(FULL, num_pages=12)
    texts = {index: [index] * 20 for index in range(3)}
    for index, text in texts.items():
        serve(cache, index, text, step=index + 1)
    assert serve(cache, 10, texts[2] + [9], step=10) == 20
    assert serve(cache, 11, texts[1] + [9], step=11) == 20
    assert serve(cache, 12, texts[0] + [9], step=12) < 20


def test_the_tail_of_an_old_conversation_goes_before_its_beginning() -> None:
    cache = cache_of(FULL, num_pages=10)
    serve(cache, 0, [7] * 24, step=1)
    serve(cache, 1, [8] * 20, step=2)  # needs one page more than is empty
    assert serve(cache, 2, [7] * 24, step=3) == 20


def test_what_fell_out_of_a_window_goes_before_the_end_of_an_older_conversation() -> None:
    cache = cache_of(FULL, WINDOW, num_pages=28)
    first, second = [1] * 24, [2] * 60
    serve(cache, 0, first, step=1)
    serve(cache, 1, second, step=2)  # 15 pages of each type are written, 12 window pages fall out on the way
    assert serve(cache, 2, [*first, 3], step=3) == 24


def test_a_text_behind_which_requests_have_branched_off_is_found_again() -> None:
    cache = cache_of(FULL, WINDOW, num_pages=200)
    article = list(range(100, 140))
    hits = [serve(cache, index, article + [index] * 30, step=index + 1) for index in range(4)]
    assert hits == [0, 40, 40, 40]


def test_the_last_checkpoint_of_a_conversation_is_where_its_next_turn_resumes() -> None:
    cache = cache_of(FULL, STATE, num_pages=60)
    conversation = list(range(100, 121))
    assert serve(cache, 0, conversation, step=1) == 0
    assert serve(cache, 1, conversation + [5] * 20, step=2) == 16
    assert serve(cache, 2, conversation + [5] * 20 + [6] * 4, step=3) == 40


def test_a_checkpoint_is_copied_into_a_new_running_state() -> None:
    cache = cache_of(STATE, num_pages=10)
    cache.open(0, 0)
    cache.admit(0, [1] * 30, 0, [1])
    cache.extend(0, 0, 8)
    cache.advance(0, [1] * 30, 8)
    ((checkpoint,),) = cache.page_table(0)
    (copy,) = extended(cache, 0, 8, 9).copies
    assert (copy.src, copy.dst) == (checkpoint, cache.page_table(0)[0][1])
    cache.advance(0, [1] * 30, 9)
    assert cache.page_table(0)[0][0] == 0
    assert cache.pools[0].num_evictable == 1
