"""Recurrent states in pages: whose state is read, and that nothing else is written."""

import numpy as np
import torch

from engine.attention.backend import StateShape, StepLayout
from engine.attention.layout import state_specs
from engine.attention.state_pages import StatePages
from engine.memory.planning.planner import plan_pool

SHAPES = (
    StateShape("conv", (3, 10), torch.bfloat16),
    StateShape("ssm", (10, 4), torch.float32),
    StateShape("conv", (3, 10), torch.bfloat16),
    StateShape("ssm", (10, 4), torch.float32),
)
PLAN = plan_pool(state_specs(SHAPES, 8), page_tokens=4, pool_bytes=1 << 14)


def layout(starts: list[int], pages: list[list[int]]) -> StepLayout:
    """The same pages for every type, but ten further on for each: no two types share a byte."""
    tables = {kind.name: np.array(pages) + 10 * which for which, kind in enumerate(PLAN.types)}
    return StepLayout(np.array(starts), np.ones(len(starts), np.int64), tables)


def test_a_state_is_found_in_the_page_of_its_interval_whatever_the_step_it_was_written_in() -> None:
    assert any(kind.padding_bytes for kind in PLAN.types)
    pages = StatePages(PLAN, torch.zeros(PLAN.pool_bytes, dtype=torch.uint8), SHAPES, 0)
    states = [torch.randn(2, *shape.shape).to(shape.dtype) for shape in SHAPES]
    step = pages.begin(layout([3, 9], [[5, 0], [0, 7]]))
    for state_id, state in enumerate(states):
        found = step.in_place(state_id)
        found.pages[found.page_ids] = state
    later = pages.begin(layout([12, 4], [[0, 7], [5, 0]]))
    for state_id, state in enumerate(states):
        found = later.in_place(state_id)
        assert torch.equal(found.pages[found.page_ids], state.flip(0))


def test_a_state_is_only_the_layer_s_part_of_its_page() -> None:
    pool = torch.full((PLAN.pool_bytes,), 7, dtype=torch.uint8)
    found = StatePages(PLAN, pool, SHAPES, 0).begin(layout([1], [[3]])).in_place(2)
    found.pages[found.page_ids] = 0
    (conv,) = (kind for kind in PLAN.types if kind.spec.part == "conv")
    first = (3 + 10 * PLAN.types.index(conv)) * conv.small_page_bytes + conv.layer_ids.index(2) * conv.layer_page_bytes
    changed = torch.zeros_like(pool)
    changed[first : first + conv.layer_page_bytes] = 1
    assert torch.equal(pool != 7, changed.bool())


def test_kernels_are_told_which_tokens_are_whose_by_the_host_and_on_the_device() -> None:
    pages = StatePages(PLAN, torch.zeros(PLAN.pool_bytes, dtype=torch.uint8), SHAPES, 0)
    whole = layout([3, 0], [[5, 0], [7, 0]])
    by_host = pages.begin(StepLayout(whole.starts, np.array([2, 4]), whole.page_tables))
    tables = {name: torch.from_numpy(table) for name, table in whole.page_tables.items()}
    starts, query_starts = torch.tensor([3, 0, 0], dtype=torch.int32), torch.tensor([0, 2, 6, 6], dtype=torch.int32)
    slots = torch.tensor([0, 1, -1], dtype=torch.int32)
    on_device = pages.begin_on_device(slots, starts, query_starts, 4, tables)
    for state_id in range(len(SHAPES)):
        found, padded = by_host.in_place(state_id), on_device.in_place(state_id)
        assert found.starts.tolist() == [3, 0]
        assert found.query_starts.tolist() == [0, 2, 6]
        assert found.max_queries == padded.max_queries == 4
        assert padded.page_ids.tolist() == [*found.page_ids.tolist(), -1]
