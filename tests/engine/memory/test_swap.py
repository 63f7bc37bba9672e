from engine.memory.designs import lcm_design
from engine.memory.kv_cache import KVCache
from engine.memory.spec import LayerSpec, PoolPlan
from engine.memory.swap import MirrorPool, SwapCost

LAYERS = (LayerSpec("full", 8, "bf16"), LayerSpec("window", 12, "bf16", span=6))


def forked_request(num_mirror_pages=20):
    design = lcm_design(LAYERS, page_tokens=4)
    plan = PoolPlan(design.types, design.large_page_bytes, 40)
    cache = KVCache(plan, max_step_tokens=16)
    for sequence in (0, 1):
        cache.open(sequence, 7)
    cache.admit(0, [1] * 40, 0, [16])
    cache.extend(0, 0, 14)
    cache.advance(0, [1] * 40, 14)
    cache.fork(0, 1)
    cache.extend(1, 14, 15)
    return cache, MirrorPool(plan, num_mirror_pages)


def test_all_sequences_go_out_together_and_a_shared_page_once():
    cache, mirror = forked_request()
    tables = [cache.page_table(0), cache.page_table(1)]
    moves = mirror.swap_out(7, tables)
    assert len(moves) == sum(len({page for table in tables for page in table[which] if page}) for which in (0, 1))
    assert mirror.used_bytes == sum(mirror.pools[move.layer_type].layer_type.small_page_bytes for move in moves)
    mirror.check_integrity()


def test_what_comes_back_is_what_went_out():
    cache, mirror = forked_request()
    tables = [cache.page_table(0), cache.page_table(1)]
    out = mirror.swap_out(7, tables)
    assert 7 in mirror
    back = mirror.swap_in(7, tables)
    assert sorted(map(repr, back)) == sorted(map(repr, out))
    assert mirror.used_bytes == 0
    assert 7 not in mirror
    mirror.check_integrity()


def test_a_full_mirror_refuses_and_keeps_nothing():
    cache, mirror = forked_request(num_mirror_pages=2)
    assert mirror.swap_out(7, [cache.page_table(0), cache.page_table(1)]) is None
    assert mirror.used_bytes == 0
    mirror.check_integrity()


def test_an_aborted_request_leaves_the_mirror():
    cache, mirror = forked_request()
    mirror.swap_out(7, [cache.page_table(0)])
    mirror.drop(7)
    assert mirror.used_bytes == 0


def test_the_cheaper_way_depends_on_bytes_and_tokens():
    cost = SwapCost(seconds_per_byte=1e-9, seconds_per_token=1e-4)
    assert cost.is_swap_cheaper(num_bytes=10**6, num_moves=1, num_tokens=1000)
    assert not cost.is_swap_cheaper(num_bytes=10**9, num_moves=1, num_tokens=1000)
