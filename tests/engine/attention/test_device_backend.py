"""The backend of step kernels against the oracle, over the kernels in plain torch."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from engine.attention.backend import AttentionShape
from engine.attention.device_backend import split_workspace, unsupported_reason
from engine.memory.planning.planner import plan_pool
from engine.memory.spec import NULL_PAGE, LayerSpec
from tests.engine.attention.cases import TOLERANCE, Case, attend_layer, cases, expected, prepare
from tests.engine.attention.device_steps import NOWHERE, aligned, begin


def check(case: Case, num_padding: int) -> None:
    case = aligned(case)
    ours, oracle = prepare(case, float("nan"), NOWHERE), prepare(case, 0.0, NULL_PAGE)
    backend, layout = begin(case, ours, num_padding=num_padding)
    step = backend.begin(layout)
    rows = [*range(len(ours.query)), *[0] * (num_padding if layout.query_starts is None else 0)]
    for layer_id in range(len(case.windows)):
        result = attend_layer(case, step, layer_id, ours.query[rows], ours.key_value[rows])[: len(ours.query)]
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
        assert workspace.outputs.shape == (max(max_rows, 128), 32, workspace.lse.shape[2], 128)
        return workspace.lse.shape[2]

    assert num_parts(64, 131_072) == 2 * 132 / 8
    assert num_parts(64, 640) == 10
    assert num_parts(1, 131_072) == 33, "and 128 rows of them: 256 queries of prompts in 16 parts"
    assert 8 <= num_parts(1024, 131_072) <= 16
    assert num_parts(100_000, 131_072) == 1


@pytest.mark.parametrize(
    ("head_dim", "page_tokens", "reason"),
    [(16, 4, None), (528, 16, "heads of 528"), (4, 1, "multiples of 16")],
)
def test_what_kernels_cannot_load_at_once_is_refused(head_dim: int, page_tokens: int, reason: str | None) -> None:
    shape = AttentionShape(1, 1, head_dim)
    spec = LayerSpec("full", 2 * head_dim * 4, "float32")
    plan = plan_pool([spec], page_tokens=page_tokens, pool_bytes=1 << 20)
    found = unsupported_reason(plan, (shape,))
    assert (found or "").find(reason or "") >= 0
    assert (found is None) == (reason is None)


def test_latents_of_512_channels_and_64_that_turn_are_read_in_parts() -> None:
    shape = AttentionShape(128, 1, 576, value_dim=512)
    plan = plan_pool([LayerSpec("full", 576 * 2, "bfloat16")], page_tokens=16, pool_bytes=1 << 20)
    assert unsupported_reason(plan, (shape,)) is None
    workspace = split_workspace(shape, 64, 131_072, 132, torch.device("meta"))
    assert workspace.outputs.shape[1] == 128
    assert workspace.outputs.shape[3] == 512
    assert 8 <= workspace.outputs.shape[2] <= 64
