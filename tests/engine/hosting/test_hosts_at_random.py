"""Random models in one pool under random loads: every model brings the tokens of an engine of its own, under
preemption, eviction across models, aborts, sleep and waking at random times.

AGON_SOAK=1 runs 2,000 hosts of each kind instead of 12.
"""

import os
import random

import pytest

from engine.memory.spec import LayerSpec
from tests.engine.fakes import ONE_TYPE, Steps
from tests.engine.hosting.fake_hosts import FakeHost, Loads

NUM_SEEDS = 2000 if os.environ.get("AGON_SOAK") else 12
MIXES = [
    ONE_TYPE,
    (LayerSpec("full", 64, "float32"), LayerSpec("full", 96, "bfloat16")),
    (LayerSpec("full", 40, "float32"), LayerSpec("full", 8, "float32")),
    (LayerSpec("full", 48, "bfloat16"),) * 3,
]


def random_host(seed: int, steps: Steps) -> tuple[FakeHost, Loads]:
    choose = random.Random(seed)
    names = ["a", "b", "c"][: choose.choice([2, 2, 3])]
    layers = {name: choose.choice(MIXES) for name in names}
    num_pages = choose.choice([4, 8, 12, 20, 40])
    host = FakeHost(layers, num_pages, choose.choice([1, 2, 4]), steps)
    for name in names:
        host.add(
            name,
            floor=choose.choice([0, 0, num_pages // 4]),
            ceiling=choose.choice([None, None, max(3, num_pages // 2)]),
            num_mirror=choose.choice([0, 0, 10, 40]),
            max_batched_tokens=choose.choice([5, 16, 64]),
            max_running=choose.choice([4, 8]),
            enable_prefix_caching=choose.random() < 0.7,
        )
    return host, Loads(host, choose, choose.choice([12, 30]))


@pytest.mark.parametrize("steps", ["in turn", "overlapping", "late"])
@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_every_model_brings_the_tokens_of_an_engine_of_its_own(seed: int, steps: Steps) -> None:
    host, loads = random_host(seed, steps)
    choose, asleep = loads.random, set[str]()
    for number in range(80):
        name = choose.choice(list(host.models))
        if choose.random() < 0.6:
            loads.arrive(name, str(number))
        if choose.random() < 0.04:
            host.models[name].core.abort(str(choose.randrange(number + 1)))
        if choose.random() < 0.08:
            if name in asleep:
                host.wake(name)
                asleep.remove(name)
            else:
                loads.take(host.sleep(name))
                asleep.add(name)
        if host.host.has_work:
            loads.take(host.step())
        host.check()
    for name in asleep:
        host.wake(name)
    for _ in range(20_000):
        if not host.host.has_work:
            break
        loads.take(host.step())
    loads.check_all()
    host.check()
    assert host.large_pool.num_used == 0


def test_loads_move_pages_between_models() -> None:
    """The test above would show nothing if these did not happen."""
    num_preemptions = num_swaps = 0
    for seed in range(12):
        host, loads = random_host(seed, "in turn")
        for number in range(60):
            loads.arrive(loads.random.choice(list(host.models)), str(number))
            loads.take(host.step())
        while host.host.has_work:
            loads.take(host.step())
        loads.check_all()
        stats = [model.core.stats() for model in host.models.values()]
        num_preemptions += sum(each.preemptions_total for each in stats)
        num_swaps += sum(each.swap_preemptions_total for each in stats)
    assert num_preemptions > 50
    assert num_swaps > 5
