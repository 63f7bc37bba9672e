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
        step.write(state_id, state)
    later = pages.begin(layout([12, 4], [[0, 7], [5, 0]]))
    for state_id, state in enumerate(states):
        assert torch.equal(later.read(state_id), state.flip(0))


def test_a_sequence_that_begins_reads_zeros_and_not_what_its_page_holds() -> None:
    pool = torch.full((PLAN.pool_bytes,), 255, dtype=torch.uint8)  # NaN in every dtype
    step = StatePages(PLAN, pool, SHAPES, 0).begin(layout([0, 1], [[3], [4]]))
    for state_id in range(len(SHAPES)):
        new, old = step.read(state_id)
        assert not new.any()
        assert old.isnan().all()


def test_a_write_changes_only_the_layer_s_part_of_the_pages() -> None:
    pool = torch.full((PLAN.pool_bytes,), 7, dtype=torch.uint8)
    step = StatePages(PLAN, pool, SHAPES, 0).begin(layout([1], [[3]]))
    step.write(2, torch.zeros(1, *SHAPES[2].shape, dtype=torch.bfloat16))
    (conv,) = (kind for kind in PLAN.types if kind.spec.part == "conv")
    first = (3 + 10 * PLAN.types.index(conv)) * conv.small_page_bytes + conv.layer_ids.index(2) * conv.layer_page_bytes
    changed = torch.zeros_like(pool)
    changed[first : first + conv.layer_page_bytes] = 1
    assert torch.equal(pool != 7, changed.bool())


def test_kernels_are_handed_the_memory_that_is_read_and_written_and_which_tokens_are_whose() -> None:
    pages = StatePages(PLAN, torch.zeros(PLAN.pool_bytes, dtype=torch.uint8), SHAPES, 0)
    whole = layout([3, 0], [[5, 0], [7, 0]])
    step = pages.begin(StepLayout(whole.starts, np.array([2, 4]), whole.page_tables))
    for state_id, shape in enumerate(SHAPES):
        states = torch.randn(2, *shape.shape).to(shape.dtype)
        step.write(state_id, states)
        found = step.in_place(state_id)
        assert torch.equal(found.pages[found.page_ids], states)
        assert found.starts.tolist() == [3, 0]
        assert found.query_starts.tolist() == [0, 2, 6]
        assert found.max_queries == 4
