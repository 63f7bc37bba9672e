"""The backend of step kernels against the oracle, over the kernels in plain torch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from engine.attention.backend import AttentionShape
from engine.attention.device_backend import DeviceBackend, DeviceLayout, split_workspace, unsupported_reason
from engine.kernels import reference
from engine.memory.planner import plan_pool
from engine.memory.spec import NULL_PAGE, LayerSpec
from tests.engine.attention.cases import TOLERANCE, Case, Prepared, attend, cases, expected, prepare

NOWHERE = 2**30  #: a page that does not exist, in the width of the device's tables


def aligned(case: Case) -> Case:
    """The same with heads and pages that kernels can load at once."""
    padding = 64 if case.padding and len(case.plan.types) == 1 else 0
    return replace(case, shape=replace(case.shape, head_dim=4 * case.shape.head_dim), padding=padding)


def begin(case: Case, prepared: Prepared, *, num_padding: int) -> tuple[DeviceBackend, DeviceLayout]:
    """Sequences in slots of any order; rows of padding behind them, and other slots' pages around theirs."""
    layout = prepared.layout
    count = len(layout.starts)
    slots = torch.randperm(count + 3, generator=torch.Generator().manual_seed(case.seed))[:count]
    tables, page_slots = {}, []
    sequence_of = np.repeat(np.arange(count), layout.lengths)
    for kind in prepared.type_layouts:
        table = layout.page_tables[kind.layer_type.name]
        rows = torch.full((count + 3, table.shape[1]), NOWHERE, dtype=torch.int32)
        rows[slots] = torch.from_numpy(table.astype(np.int32))
        tables[kind.layer_type.name] = rows
        page_ids = table[sequence_of, layout.positions // case.page_tokens]
        places = torch.from_numpy(page_ids * case.page_tokens + layout.positions % case.page_tokens)
        page_slots.append(places)
    is_decode = bool((layout.lengths == 1).all())
    nowhere = torch.full((num_padding if is_decode else 0,), -1)
    contexts = torch.from_numpy(layout.starts + layout.lengths).int()
    device_layout = DeviceLayout(
        slots=torch.cat((slots, torch.full((num_padding,), -1))).int(),
        context_lengths=torch.cat((contexts, torch.zeros(num_padding, dtype=torch.int32))),
        page_slots=[torch.cat((places, nowhere)) for places in page_slots],
        query_starts=None if is_decode else query_starts(layout.lengths, num_padding),
        max_queries=int(layout.lengths.max()),
        max_context=int(contexts.max()),
    )
    rows, context = count + num_padding, int(contexts.max())
    backend = DeviceBackend(reference, case.plan, prepared.pool, case.shapes, case.dtype, tables, rows, context)
    return backend, device_layout


def query_starts(lengths: np.ndarray[tuple[int], np.dtype[np.int64]], num_padding: int) -> torch.Tensor:
    ends = np.cumsum(lengths)
    return torch.from_numpy(np.concatenate(([0], ends, np.full(num_padding, ends[-1])))).int()


def check(case: Case, num_padding: int) -> None:
    case = aligned(case)
    ours, oracle = prepare(case, float("nan"), NOWHERE), prepare(case, 0.0, NULL_PAGE)
    backend, layout = begin(case, ours, num_padding=num_padding)
    step = backend.begin(layout)
    rows = [*range(len(ours.query)), *[0] * (num_padding if layout.query_starts is None else 0)]
    for layer_id in range(len(case.windows)):
        result = attend(step, layer_id, ours.query[rows], ours.key_value[rows])[: len(ours.query)]
        wanted = expected(case, oracle, layer_id).flatten(1)
        torch.testing.assert_close(result, wanted, atol=TOLERANCE[case.dtype], rtol=TOLERANCE[case.dtype])


@settings(max_examples=60, deadline=None)
@given(cases())
def test_it_equals_the_oracle_and_never_reads_stale_bytes(case: Case) -> None:
    check(case, num_padding=2)


@settings(max_examples=30, deadline=None)
@given(cases())
def test_decode_steps_do_so_too(case: Case) -> None:
    check(replace(case, lengths=[1] * len(case.starts)), num_padding=3)


def test_one_row_alone_fills_a_device_and_memory_bounds_the_parts_of_many() -> None:
    def num_parts(max_rows: int, max_context: int) -> int:
        workspace = split_workspace(AttentionShape(32, 8, 128), max_rows, max_context, 132, torch.device("meta"))
        assert workspace.outputs.shape == (max_rows, 32, workspace.lse.shape[2], 128)
        return workspace.lse.shape[2]

    assert num_parts(64, 131_072) == 2 * 132 / 8
    assert num_parts(64, 640) == 10
    assert 8 <= num_parts(1024, 131_072) <= 16
    assert num_parts(100_000, 131_072) == 1


@pytest.mark.parametrize(
    ("head_dim", "page_tokens", "reason"),
    [(16, 4, None), (512, 16, "heads of 512"), (4, 1, "multiples of 16")],
)
def test_what_kernels_cannot_load_at_once_is_refused(head_dim: int, page_tokens: int, reason: str | None) -> None:
    shape = AttentionShape(1, 1, head_dim)
    spec = LayerSpec("full", 2 * head_dim * 4, "float32")
    plan = plan_pool([spec], page_tokens=page_tokens, pool_bytes=1 << 20)
    found = unsupported_reason(plan, (shape,))
    assert (found or "").find(reason or "") >= 0
    assert (found is None) == (reason is None)
