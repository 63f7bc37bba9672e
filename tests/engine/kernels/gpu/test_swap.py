"""Pages are swapped to the mirror in host memory and back with the Triton gather and scatter kernels."""

import pytest
import torch

from engine.attention.layout import small_pages
from engine.batch import PageMove
from engine.kernels import gpu
from engine.memory.planning.planner import plan_pool
from engine.memory.spec import LayerSpec
from engine.runner.host_mirror import HostMirror


@pytest.mark.first_minutes
def test_pages_come_back_bit_for_bit_in_other_places_and_nothing_else_changes(device: torch.device) -> None:
    specs = [LayerSpec("full", 64, "bfloat16")] * 2 + [LayerSpec("window", 24, "bfloat16", span=8)]
    plan = plan_pool(specs, page_tokens=4, pool_bytes=1 << 14)
    words = torch.randint(-(2**62), 2**62, (plan.pool_bytes // 8,), generator=torch.Generator().manual_seed(0))
    pool = words.view(torch.uint8).to(device)
    pages = {kind.name: small_pages(plan, kind, pool) for kind in plan.types}
    mirror = HostMirror(plan, torch.zeros(plan.pool_bytes, dtype=torch.uint8), pages, gpu)
    for kind in plan.types:
        before = pages[kind.name].clone()
        mirror.move([PageMove(kind.name, 3, 1), PageMove(kind.name, 5, 4)], [])
        assert torch.equal(pages[kind.name], before)
        mirror.move([], [PageMove(kind.name, 2, 4), PageMove(kind.name, 6, 1)])
        expected = before.clone()
        expected[2], expected[6] = before[5], before[3]
        assert torch.equal(pages[kind.name], expected)
