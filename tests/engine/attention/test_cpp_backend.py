"""The C++ attention against the plain reference, on every instruction set that this machine can run."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings

from engine.attention.backend import AttentionShape, HeadNorms, StepLayout
from engine.attention.cpp_backend import CppBackend, unsupported_reason
from engine.attention.rotation import Rotation
from engine.attention.torch_backend import TorchBackend
from engine.kernels.cpu.library import Library
from engine.kernels.cpu.scratch import Scratch
from engine.kernels.reference.store_heads import quantised
from engine.memory.planning.planner import plan_pool
from engine.memory.spec import NULL_PAGE, LayerSpec
from tests.engine.attention.cases import (
    TOLERANCE,
    Case,
    Prepared,
    attend,
    attend_layer,
    cases,
    expected,
    prepare,
    with_larger_heads,
)
from tests.engine.kernels.libraries import SANITIZE, USABLE, library


def backend_with_the_past(case: Case, prepared: Prepared, library: Library) -> CppBackend:
    """A backend whose pages hold what the reference's hold, written token by token through its own operator."""
    nan_dtype = torch.float32 if case.kv_dtype else case.dtype
    pool = torch.full_like(prepared.pool.view(nan_dtype), float("nan")).view(torch.uint8)
    pool[: case.plan.large_page_bytes] = 0  # the null page of every type
    backend = CppBackend(case.plan, pool, case.shapes, case.dtype, library, Scratch())
    past = [(row, start) for row, start in enumerate(case.starts) if start]
    if not past:
        return backend
    rows, starts = map(np.array, zip(*past, strict=True))
    shape = case.shape
    tables = {name: table[rows] for name, table in prepared.layout.page_tables.items()}
    step = backend.begin(StepLayout(np.zeros_like(starts), starts, tables))
    for kind in prepared.type_layouts:
        for layer_id in kind.layer_type.layer_ids:
            pages, scales = kind.layer_pages(prepared.pool, layer_id), kind.layer_scales(prepared.pool, layer_id)
            pages = pages if scales is None else (pages * scales[..., None]).to(case.dtype)
            key_value = torch.cat(
                [
                    pages[table[np.arange(start) // case.page_tokens], :, :, np.arange(start) % case.page_tokens]
                    for start, table in zip(starts, tables[kind.layer_type.name], strict=True)
                ]
            )
            attend(step, layer_id, key_value.new_zeros(len(key_value), shape.num_heads, shape.head_dim), key_value)
    return backend


@pytest.mark.parametrize("instruction_set", USABLE)
@settings(max_examples=8 if os.environ.get(SANITIZE) else 16, deadline=None)
@given(case=cases())
def test_it_equals_the_reference_and_never_reads_stale_bytes(instruction_set: str, case: Case) -> None:
    case = replace(with_larger_heads(case), padding=case.padding // 2 * 2)
    assume(unsupported_reason(case.plan, case.shapes, case.dtype) is None)
    prepared = prepare(case, 0.0, NULL_PAGE)
    step = backend_with_the_past(case, prepared, library(instruction_set)).begin(prepared.layout)
    for layer_id in range(len(case.windows)):
        result = attend_layer(case, step, layer_id, prepared.query, prepared.key_value)
        wanted = expected(case, prepared, layer_id).flatten(1)
        torch.testing.assert_close(result, wanted, atol=TOLERANCE[case.dtype], rtol=TOLERANCE[case.dtype])


@pytest.mark.parametrize("kv_dtype", [None, torch.int8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 100])
def test_a_token_is_the_same_to_the_last_bit_however_the_work_is_cut(
    dtype: torch.dtype, window: int | None, kv_dtype: torch.dtype | None
) -> None:
    """Alone or beside others, in one chunk or token by token, on one thread or two."""
    shape = AttentionShape(6, 2, 32, softcap=20.0, sinks=(-1.0, 0.5, 3.0, 9.0, -30.0, 0.0))
    length, windows = 700, (window,)
    whole = Case(shape, 16, [0, 0], [length, 90], seed=1, dtype=dtype, windows=windows, kv_dtype=kv_dtype)
    prepared = prepare(whole, 0.0, NULL_PAGE)
    wanted = attend(
        backend_with_the_past(whole, prepared, library(num_threads=2)).begin(prepared.layout),
        0,
        prepared.query.clone(),
        prepared.key_value,
    )[:length]
    backend = backend_with_the_past(whole, prepared, library(num_threads=1))
    tables = {name: table[:1] for name, table in prepared.layout.page_tables.items()}
    outputs, start = [], 0
    for size in (1, 250, 3, 100, 345, 1):
        step = backend.begin(StepLayout(np.array([start]), np.array([size]), tables))
        outputs.append(attend(step, 0, prepared.query[start : start + size], prepared.key_value[start : start + size]))
        start += size
    assert start == length
    assert torch.equal(torch.cat(outputs), wanted)


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("growth", [0.05, 0.5, -0.5])
def test_scores_may_grow_along_a_context(instruction_set: str, dtype: torch.dtype, growth: float) -> None:
    """growth: of the scores from one token to the next. Sums are rescaled where scores have grown by more than some."""
    shape = AttentionShape(2, 1, 32, score_scale=1.0, sinks=(5.0, -5.0))
    case = Case(shape, 16, [0], [330], seed=5, dtype=dtype, windows=(None,))
    prepared = prepare(case, 0.0, NULL_PAGE)
    prepared.query.mul_(0.05)[..., 0] = 1.0
    prepared.key_value[:, 0, 0, 0] = growth * torch.arange(-165, 165)
    step = backend_with_the_past(case, prepared, library(instruction_set)).begin(prepared.layout)
    result = attend(step, 0, prepared.query, prepared.key_value)
    wanted = expected(case, prepared, 0).flatten(1)
    torch.testing.assert_close(result, wanted, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("kv_dtype", [None, torch.int8])
@pytest.mark.parametrize("rotary_dim", [32, 20, None])
@pytest.mark.parametrize(("has_norms", "has_value_norm"), [(True, False), (True, True), (False, False)])
def test_norm_and_rotation_are_those_of_the_torch_backend(
    rotary_dim: int | None, has_norms: bool, has_value_norm: bool, kv_dtype: torch.dtype | None
) -> None:
    case = Case(AttentionShape(4, 2, 32), 16, [0, 0], [37, 1], seed=3, dtype=torch.float32, kv_dtype=kv_dtype)
    generator = torch.Generator().manual_seed(4)
    prepared = prepare(case, 0.0, NULL_PAGE)
    qkv = torch.randn(38, 8, 32, generator=generator)
    angles = torch.randn(38, (rotary_dim or 0) // 2, generator=generator)
    rotation = Rotation(angles.cos(), angles.sin()) if rotary_dim else None
    weights = torch.randn(2, 32, generator=generator)
    norms = HeadNorms(weights[0], weights[1], 1e-5, has_values=has_value_norm)
    torch_backend = TorchBackend(case.plan, torch.zeros_like(prepared.pool), case.shapes, case.dtype)
    cpp_backend = CppBackend(case.plan, torch.zeros_like(prepared.pool), case.shapes, case.dtype, library(), Scratch())
    results = [
        backend.begin(prepared.layout).attend(0, qkv.clone(), rotation, norms if has_norms else None)
        for backend in (torch_backend, cpp_backend)
    ]
    # Where a rotated key lies halfway between two bytes, the last bit of a float decides on one of them.
    tolerance = 2e-2 if kv_dtype else 1e-5
    torch.testing.assert_close(*results, atol=tolerance, rtol=tolerance)


def test_offsets_beyond_two_gigabytes_of_elements_do_not_wrap() -> None:
    shape = AttentionShape(1, 1, 64)
    plan = plan_pool([LayerSpec("full", 2 * 64 * 2, "bfloat16")], page_tokens=16, pool_bytes=6 << 30)
    pool = torch.from_numpy(np.zeros(plan.pool_bytes, dtype=np.uint8))  # never touched but in one page
    last = plan.num_large_pages - 1
    layout = StepLayout(np.array([0]), np.array([3]), {plan.types[0].name: np.array([[last]])})
    key_value = torch.ones(3, 2, 1, 64, dtype=torch.bfloat16)
    step = CppBackend(plan, pool, (shape,), torch.bfloat16, library(), Scratch()).begin(layout)
    assert attend(step, 0, key_value[:, 0], key_value).eq(1).all()
    assert pool.view(torch.bfloat16)[last * 16 * 128 :].eq(1).sum() == 2 * 3 * 64


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_and_scales_are_those_of_the_reference(instruction_set: str, dtype: torch.dtype) -> None:
    """A query that reads one token gives back its value, exactly as it was rounded; a head of zeros stays one."""
    case = Case(AttentionShape(2, 2, 16), 16, [0], [1], seed=5, dtype=dtype, kv_dtype=torch.int8)
    prepared = prepare(case, 0.0, NULL_PAGE)
    prepared.key_value[0, :, 1] = 0
    prepared.key_value[0, 1, 0, :3] = torch.tensor([1e-3, -300.0, 1.1811], dtype=dtype)  # half a step is 1.1811
    step = CppBackend(
        case.plan, torch.zeros_like(prepared.pool), case.shapes, dtype, library(instruction_set), Scratch()
    )
    result = attend(step.begin(prepared.layout), 0, prepared.query, prepared.key_value)
    value = prepared.key_value[0, 1].float()
    scale = value.abs().amax(dim=-1, keepdim=True) / 127
    wanted = quantised(value, scale, torch.int8).float() * scale
    tolerance = 1e-6 if dtype == torch.float32 else 2**-8
    torch.testing.assert_close(result.view(2, 16).float(), wanted, atol=0, rtol=tolerance)


def test_what_it_does_not_take_is_said() -> None:
    spec = LayerSpec("full", 2 * 24 * 2, "bfloat16")
    plan = plan_pool([spec], page_tokens=7, pool_bytes=1 << 20)
    reason = unsupported_reason(plan, (AttentionShape(1, 1, 24),), torch.bfloat16)
    assert reason is not None
    assert "24 channels" in reason
    reason = unsupported_reason(plan, (AttentionShape(1, 1, 32),), torch.bfloat16)
    assert reason is not None
    assert "7 tokens" in reason
    reason = unsupported_reason(plan, (AttentionShape(1, 1, 32),), torch.float32)
    assert reason is not None
    assert "bfloat16 where torch.float32" in reason
