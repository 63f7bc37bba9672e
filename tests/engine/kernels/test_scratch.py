"""The memory of what steps compute on the way."""

import torch

from engine.hosting.shared_pool import SharedPool
from engine.kernels.cpu.scratch import Scratch
from engine.memory.spec import LayerSpec


def test_it_grows_and_is_kept() -> None:
    scratch = Scratch()
    small = scratch.address_of(1000)
    large = scratch.address_of(100_000)
    assert small % 64 == large % 64 == 0
    assert scratch.address_of(1000) == scratch.address_of(100_000) == large


def test_models_of_one_pool_share_it() -> None:
    pool, cpu = SharedPool(1 << 20), torch.device("cpu")
    for name in ("a", "b"):
        layers = (LayerSpec("full", 64, "bfloat16", model=name),)
        cut = pool.cut_with(name, layers, 16, cpu)
        pool.plan_of(cut, name, cpu)
        pool.join(name, layers, 16, cut)
    assert pool.given("a").scratch is pool.given("b").scratch
