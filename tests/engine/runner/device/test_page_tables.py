"""Page tables on the device: what steps bring adds up to what the scheduler means."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import PageTableUpdate
from engine.memory.planning.planner import plan_pool
from engine.memory.spec import LayerSpec, PoolPlan
from engine.runner.device.page_tables import PageTables

SLOTS, MAX_LEN = 5, 90
SPECS = [
    LayerSpec("full", 64, "float32"),
    LayerSpec("window", 64, "float32", span=20),
    LayerSpec("recurrent", 256, "float32", span=16),
]


def make_plan() -> PoolPlan:
    return plan_pool(SPECS, page_tokens=4, pool_bytes=1 << 20)


@st.composite
def steps(draw: st.DrawFn) -> list[list[PageTableUpdate]]:
    """Any updates, also several of one entry in one step."""
    plan = make_plan()

    def update() -> PageTableUpdate:
        kind = draw(st.sampled_from(plan.types))
        num_entries = -(-MAX_LEN // kind.page_tokens)
        start = draw(st.integers(0, num_entries - 1))
        pages = draw(st.lists(st.integers(0, 2**20), max_size=num_entries - start))
        return PageTableUpdate(draw(st.integers(0, SLOTS - 1)), kind.name, start, tuple(pages))

    return [[update() for _ in range(draw(st.integers(0, 6)))] for _ in range(draw(st.integers(1, 4)))]


@settings(max_examples=60, deadline=None)
@given(steps())
def test_changes_add_up_to_the_whole_tables(history: list[list[PageTableUpdate]]) -> None:
    plan = make_plan()
    tables = PageTables(plan, SLOTS, MAX_LEN, torch.device("cpu"))
    wanted = {name: np.zeros(tuple(table.shape), np.int64) for name, table in tables.tables.items()}
    addresses = {name: table.data_ptr() for name, table in tables.tables.items()}
    for updates in history:
        entries, pages = tables.deltas(updates)
        assert len(np.unique(entries)) == len(entries)
        tables.write(torch.from_numpy(entries), torch.from_numpy(pages))
        for update in updates:
            wanted[update.layer_type][update.slot, update.start : update.start + len(update.page_ids)] = update.page_ids
        for name, table in tables.tables.items():
            np.testing.assert_array_equal(table.numpy(), wanted[name])
    assert {name: table.data_ptr() for name, table in tables.tables.items()} == addresses


def test_rows_begin_where_kernels_can_load_them_at_once() -> None:
    tables = PageTables(make_plan(), SLOTS, MAX_LEN, torch.device("cpu"))
    assert all(table.stride(0) % 16 == 0 for table in tables.tables.values())
