"""Paged attention kernels against their reference, on pages that are poisoned wherever no query reads."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels import gpu, reference
from engine.kernels.gpu import launching, paged_attention
from engine.kernels.step_kernels import AttentionOptions, SplitWorkspace, StepKernels
from tests.engine.kernels.paged_steps import PagedStep, options_of, paged_step

TOLERANCES = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}


def assert_close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(actual, expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


def stale_workspace(step: PagedStep, num_rows: int, splits: int) -> SplitWorkspace:
    """As an earlier step may have left it."""
    workspace = SplitWorkspace.allocate(num_rows, step.query.shape[1], splits, step.value_dim, step.query.device)
    for part in (workspace.outputs, workspace.lse):
        part.fill_(float("nan"))
    workspace.counts.fill_(99)
    return workspace


def mixed(kernels: StepKernels, step: PagedStep, options: AttentionOptions, splits: int = 4) -> torch.Tensor:
    """splits: 1: no prompt is cut."""
    output = step.new_output()
    rows = (step.query, step.pages, step.page_table, step.slots, step.context_lengths, step.query_starts)
    workspace = stale_workspace(step, len(step.query), splits)
    bounds = (step.max_queries, int(step.context_lengths.max()))
    kernels.attend_mixed(*rows, output, options, workspace, *bounds, step.scales)
    return output


def decode(kernels: StepKernels, step: PagedStep, options: AttentionOptions, splits: int = 4) -> torch.Tensor:
    output = step.new_output()
    rows = (step.query, step.pages, step.page_table, step.slots, step.context_lengths)
    workspace = stale_workspace(step, len(step.slots) + 1, splits)
    kernels.attend_decode(*rows, output, options, workspace, step.scales)
    assert not workspace.arrivals.any()
    return output


def row(step: PagedStep, i: int) -> PagedStep:
    """Row i of a decode step as a step of its own."""
    rows = slice(i, i + 1)
    lengths, slots = step.context_lengths[rows], step.slots[rows].clone()
    return replace(step, query=step.query[rows], slots=slots, context_lengths=lengths.clone())


def noted_grids(monkeypatch: pytest.MonkeyPatch, *, is_run: bool = True) -> list[tuple[int, ...]]:
    """The grids of launches of attend_pages from now on. is_run: they, and those that merge states, take place."""
    grids: list[tuple[int, ...]] = []
    start = launching.launch

    def noted(kernel: Any, grid: tuple[int, ...]) -> Callable[..., None]:
        grids.append(grid)
        return start(kernel, grid) if is_run else lambda *arguments, **named: None

    monkeypatch.setattr(paged_attention, "start", noted)
    if not is_run:
        monkeypatch.setattr(paged_attention, "merge_states", lambda *arguments: None)
    return grids


@dataclass(frozen=True)
class Shape:
    group_size: int = 4
    head_dim: int = 16
    page_tokens: int = 16
    num_kv_heads: int = 1
    dtype: torch.dtype = torch.float16
    value_dim: int | None = None


#: Shape, options by name, window, contexts and queries: at the edges of tiles of 64 tokens and of 64 or 128 rows.
MIXED = {
    "plain": (Shape(), "plain", None, [1, 64, 65, 129, 33], [1, 1, 33, 32, 33]),
    "groups of three, pages of 24": (
        Shape(3, 16, 24, 2), "plain", None, [130, 5], [43, 1],
    ),
    "groups of seven, soft cap": (Shape(7, 32, 48), "softcap", None, [70, 128, 64], [10, 2, 19]),
    "float32, ALiBi, pages of 144": (Shape(1, 16, 144, 2, torch.float32), "alibi", None, [150, 300], [129, 1]),
    "sinks, heads of 80": (Shape(5, 80, 8), "sinks", None, [66, 9], [3, 9]),
    "the whole context": (Shape(2, 24, 64), "whole", None, [100, 191], [70, 3]),
    "bfloat16": (Shape(8, 16, 16, 1, torch.bfloat16), "plain", None, [77, 40], [9, 40]),
    "a window of one token": (Shape(2), "plain", 1, [200, 65], [66, 65]),
    "a window within a tile": (Shape(2), "sinks", 7, [200, 64], [66, 1]),
    "float32, a window of some tiles": (Shape(6, dtype=torch.float32), "softcap", 130, [300, 131, 70], [60, 1, 70]),
    "a window that nothing outgrows": (Shape(4, 16, 128), "alibi", 400, [300, 131], [40, 131]),
    "groups of 32": (Shape(32), "plain", None, [65, 20], [5, 2]),
    "chunks within a tile": (Shape(2), "chunks", 7, [200, 64, 7, 8], [66, 1, 3, 8]),
    "float32, chunks of some tiles": (Shape(6, dtype=torch.float32), "chunks", 130, [300, 131, 130], [60, 2, 70]),
    "latents": (Shape(16, 40, 16, 1, torch.float32, 32), "plain", None, [1, 64, 129, 33], [1, 1, 32, 33]),
    "latents of two heads, no power of two": (Shape(5, 60, 8, 2, value_dim=40), "softcap", None, [70, 128], [10, 2]),
    "latents in a window, bfloat16": (Shape(4, 24, 16, 1, torch.bfloat16, 16), "sinks", 40, [200, 64], [66, 1]),
    "latents of more heads than a tile takes": (Shape(48, 288, 16, 1, torch.float32, 272), "plain", None, [40], [3]),
    "latents by halves": (Shape(16, 288, 16, 1, torch.float16, 272), "sinks", None, [70, 9], [6, 1]),
}  # fmt: skip


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("name", MIXED)
def test_steps_of_prompts_chunks_and_decodes_equal_the_reference(name: str, device: torch.device) -> None:
    shape, kind, window, contexts, queries = MIXED[name]
    step = paged_step(contexts, queries, window=window, device=device, **vars(shape))
    options = options_of(kind, step.query.shape[1], window, device)
    assert_close(mixed(gpu, step, options), mixed(reference, step, options), shape.dtype)


#: Contexts at the edges of tiles and of parts (256 tokens), and too long for max_parts parts of that length.
DECODE = {
    "plain": (Shape(), "plain", None, [1, 64, 255, 256, 257, 1025]),
    "groups of three, pages of 48": (Shape(3, 16, 48, 2), "plain", None, [513, 1100]),
    "float32, soft cap, no groups": (Shape(1, 32, 24, 1, torch.float32), "softcap", None, [65, 300]),
    "ALiBi": (Shape(5, 16, 64), "alibi", None, [63, 1300]),
    "sinks, bfloat16": (Shape(7, 16, 16, 1, torch.bfloat16), "sinks", None, [1, 600]),
    "groups of 32, heads of 112": (Shape(32, 112), "plain", None, [2, 300]),
    "a window within a tile": (Shape(2), "sinks", 3, [2, 200, 1000]),
    "a window of several parts": (Shape(2, 16, 8), "softcap", 511, [600, 1213, 100]),
    "chunks": (Shape(5, 16, 8), "chunks", 511, [511, 512, 1213, 100]),
    "latents": (Shape(16, 40, 16, 1, torch.float32, 32), "plain", None, [1, 255, 257, 1025]),
    "latents of two heads, no power of two": (Shape(5, 60, 8, 2, value_dim=40), "sinks", None, [65, 600]),
    "latents of more heads than a tile takes": (Shape(80, 288, 16, 1, torch.float32, 272), "plain", None, [300]),
    "latents by halves": (Shape(80, 320, 16, 1, torch.bfloat16, 288), "plain", None, [300]),
}


@pytest.mark.first_minutes(3)
@pytest.mark.parametrize("name", DECODE)
def test_decodes_equal_the_reference_in_any_number_of_parts(name: str, device: torch.device) -> None:
    shape, kind, window, contexts = DECODE[name]
    step = paged_step(contexts, [1] * len(contexts), window=window, device=device, **vars(shape))
    options = options_of(kind, step.query.shape[1], window, device)
    expected = decode(reference, step, options)
    for splits in (1, 2, 8):
        assert_close(decode(gpu, step, options, splits), expected, shape.dtype)


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("page_dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("kind", ["plain", "softcap"])
def test_quantised_pages_equal_the_reference(page_dtype: torch.dtype, kind: str, device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        options = options_of(kind, 6, None, device)
        quantised_step = partial(paged_step, dtype=dtype, page_dtype=page_dtype, group_size=3, device=device)
        step = quantised_step([70, 90], [1, 20])
        assert_close(mixed(gpu, step, options), mixed(reference, step, options), dtype)
        step = quantised_step([300], [1])
        assert_close(decode(gpu, step, options, 2), decode(reference, step, options), dtype)
        step = quantised_step([300, 70], [1, 1], head_dim=24, value_dim=16)
        assert_close(decode(gpu, step, options, 2), decode(reference, step, options), dtype)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.data())
def test_any_step_equals_the_reference(device: torch.device, data: st.DataObject) -> None:
    edges = st.sampled_from([0, 1, 15, 63, 64, 65, 127, 128])
    rows = data.draw(st.lists(st.tuples(edges, st.sampled_from([1, 1, 2, 31, 32, 33])), min_size=1, max_size=3))
    dtype = data.draw(st.sampled_from([torch.float16, torch.float32]))
    kind = data.draw(st.sampled_from(["plain", "softcap", "alibi", "sinks", "whole"]))
    window = data.draw(st.sampled_from([None, None, 1, 16, 64, 65]))
    step = paged_step(
        [before + own for before, own in rows],
        [own for _, own in rows],
        window=window,
        group_size=data.draw(st.integers(1, 8)),
        num_kv_heads=1,
        page_tokens=data.draw(st.sampled_from([8, 16, 24, 64])),
        dtype=dtype,
        seed=data.draw(st.integers(0, 99)),
        device=device,
    )
    options = options_of(kind, step.query.shape[1], window, device)
    assert_close(mixed(gpu, step, options), mixed(reference, step, options), dtype)


def test_a_decode_is_the_same_to_the_last_bit_in_any_batch_and_in_any_pages(device: torch.device) -> None:
    step = paged_step([700, 1, 300], [1, 1, 1], device=device)
    options = options_of("plain", step.query.shape[1], None, device)
    output = decode(gpu, step, options, 3)
    for i in range(3):
        assert torch.equal(decode(gpu, row(step, i), options, 3)[0], output[i])
    order = torch.randperm(len(step.pages), device=device)
    moved = torch.empty_strided(step.pages.shape, step.pages.stride(), device=device)
    moved[order] = step.pages
    is_page = (step.page_table >= 0) & (step.page_table < len(order))
    table = torch.where(is_page, order[step.page_table.where(is_page, 0).long()], step.page_table).int()
    assert torch.equal(decode(gpu, replace(step, pages=moved, page_table=table), options, 3), output)


@pytest.mark.parametrize("programs", [1, 4])
def test_a_decode_is_the_same_to_the_last_bit_on_any_number_of_programs(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, programs: int
) -> None:
    """Alone a row has a program for each part; beside long rows one takes all parts, or some in turn."""
    step = paged_step([300, 2100, 5], [1, 1, 1], num_kv_heads=1, device=device)
    options = options_of("sinks", step.query.shape[1], None, device)
    grids = noted_grids(monkeypatch)
    alone = [decode(gpu, row(step, i), options, 6)[0] for i in range(3)]
    monkeypatch.setattr(paged_attention, "num_programs", lambda *numbers: programs)
    together = decode(gpu, step, options, 6)
    assert grids == 3 * [(1, 1, 6)] + [(3, 1, programs)]
    assert torch.equal(together, torch.stack(alone))
    assert_close(together, decode(reference, step, options), torch.float32)


@pytest.mark.parametrize("name", ["groups of three, pages of 48", "ALiBi", "a window of several parts"])
def test_programs_that_merge_their_parts_give_the_bits_of_merge_states(
    name: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than eight parts, of which two programs have some each; and a row of padding."""
    shape, kind, window, contexts = DECODE[name]
    step = paged_step([*contexts, 2600], [1] * (len(contexts) + 1), window=window, device=device, **vars(shape))
    step.slots[0] = -1
    options = options_of(kind, step.query.shape[1], window, device)
    monkeypatch.setattr(paged_attention, "num_programs", lambda *numbers: 2)
    ours = decode(gpu, step, options, 11)
    monkeypatch.setattr(paged_attention, "can_merge", lambda *tensors: False)
    assert torch.equal(ours, decode(gpu, step, options, 11))


def test_one_longer_row_adds_no_program_to_a_large_batch(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 rows of Llama 3.1 8B on an H100. A bound on the longest context once made this (256, 8, 16)."""
    monkeypatch.setattr(paged_attention, "num_multiprocessors", lambda _: 132)
    grids = noted_grids(monkeypatch, is_run=False)
    shape = (256, 32, 128)
    query, pages = torch.empty(shape, device="meta"), torch.empty(2, 2, 8, 16, 128, device="meta")
    table = torch.empty(256, 80, dtype=torch.int32, device="meta")
    slots, lengths = (torch.empty(256, dtype=torch.int32, device="meta") for _ in range(2))
    workspace = SplitWorkspace.allocate(256, 32, 33, 128, torch.device("meta"))
    options = AttentionOptions(scale=0.1)
    gpu.attend_decode(query, pages, table, slots, lengths, torch.empty_like(query), options, workspace)
    assert grids == [(256, 8, 3)]


def test_prompts_in_chunks_or_token_by_token_give_what_they_give_at_once(device: torch.device) -> None:
    step = paged_step([100], [100], device=device)
    options = options_of("plain", step.query.shape[1], 40, device)
    whole = mixed(gpu, step, options)
    for first, last in ((0, 33), (33, 99)):
        starts = torch.tensor([0, last - first], dtype=torch.int32, device=device)
        length = torch.tensor([last], dtype=torch.int32, device=device)
        chunk = replace(step, query=step.query[first:last], context_lengths=length, query_starts=starts)
        assert_close(mixed(gpu, chunk, options), whole[first:last], torch.float32)
    assert_close(decode(gpu, replace(step, query=step.query[99:]), options)[0], whole[99], torch.float32)


def test_options_that_change_nothing_change_nothing(device: torch.device) -> None:
    step = paged_step([90, 130], [1, 40], device=device)
    plain = AttentionOptions(scale=0.3)
    expected = mixed(gpu, step, plain)
    no_slopes = torch.zeros(step.query.shape[1], device=device)
    no_sinks = torch.full((step.query.shape[1],), float("-inf"), device=device)
    for options in (
        replace(plain, window=131),
        replace(plain, softcap=1e4),
        replace(plain, alibi_slopes=no_slopes),
        replace(plain, sinks=no_sinks),
    ):
        # The kernel's tanh is exact to 1e-5 of the soft cap.
        torch.testing.assert_close(mixed(gpu, step, options), expected, atol=2e-3, rtol=2e-3)


def test_scores_of_tens_of_thousands_and_equal_values_are_exact(device: torch.device) -> None:
    step = paged_step([90, 300], [30, 1], magnitude=60.0, device=device)
    options = AttentionOptions(scale=2.0)
    expected = mixed(reference, step, options)
    torch.testing.assert_close(mixed(gpu, step, options), expected, atol=2e-2, rtol=2e-3)
    step.pages[:, 1] = 3.0
    torch.testing.assert_close(mixed(gpu, step, options), torch.full_like(step.query, 3.0))


def test_rows_of_padding_and_tokens_of_no_row_are_not_written(device: torch.device) -> None:
    step = paged_step([9, 40], [4, 2], device=device)
    query = torch.cat((step.query, torch.full_like(step.query[:3], float("nan"))))
    padding = torch.tensor([-1, -1], dtype=torch.int32, device=device)
    padded = replace(
        step,
        query=query,
        slots=torch.cat((step.slots, padding)),
        context_lengths=torch.cat((step.context_lengths, torch.tensor([0, 99], dtype=torch.int32, device=device))),
        query_starts=torch.cat((step.query_starts, step.query_starts[-1:], step.query_starts[-1:] + 1)),
    )
    options = options_of("sinks", step.query.shape[1], None, device)
    output = mixed(gpu, padded, options)
    assert_close(output[:6], mixed(reference, step, options), torch.float32)
    assert output[6:].isnan().all()

    step = paged_step([300], [1], device=device)
    lengths = torch.cat((step.context_lengths, torch.tensor([0, 99], dtype=torch.int32, device=device)))
    padded = replace(
        step, query=step.query.repeat(3, 1, 1), slots=torch.cat((step.slots, padding)), context_lengths=lengths
    )
    output = decode(gpu, padded, options)
    assert_close(output[:1], decode(reference, step, options), torch.float32)
    assert (output[1:] == 0).all()


def test_what_a_kernel_cannot_read_well_is_refused(device: torch.device) -> None:
    step = paged_step([9], [1], device=device)
    options = options_of("plain", step.query.shape[1], None, device)
    moved = step.pages.as_strided(step.pages.shape, step.pages.stride(), step.pages.storage_offset() + 1)
    with pytest.raises(ValueError, match="multiple of 16"):
        decode(gpu, replace(step, pages=moved), options)
    with pytest.raises(ValueError, match="without scales"):
        decode(gpu, replace(step, query=step.query.half()), options)
    with pytest.raises(ValueError, match="must be 1 adjacent int32"):
        decode(gpu, replace(step, slots=step.slots.long()), options)
    with pytest.raises(ValueError, match="and 2 parts"):
        decode(gpu, replace(step, value_dim=8), options)
    with pytest.raises(ValueError, match="and 1 parts"):
        decode(gpu, replace(paged_step([9], [1], value_dim=8, device=device), value_dim=16), options)


#: Shape, options by name, window, contexts and queries: few queries behind contexts of several parts, and short rows.
IN_PARTS = {
    "plain": (Shape(), "plain", None, [2100, 9], [5, 9]),
    "groups of three, soft cap": (Shape(3, 16, 48), "softcap", None, [1111], [17]),
    "float32, ALiBi": (Shape(2, 16, 24, 1, torch.float32), "alibi", None, [700, 300], [3, 1]),
    "sinks, bfloat16": (Shape(8, 16, 16, 1, torch.bfloat16), "sinks", None, [1500], [20]),
    "the whole context": (Shape(2, 24, 64), "whole", None, [1300, 600], [4, 3]),
    "a window of several parts": (Shape(2, dtype=torch.float32), "sinks", 700, [1200, 40], [6, 4]),
    "a chunk that ends behind a part": (Shape(4, dtype=torch.float32), "plain", None, [514], [6]),
    "latents": (Shape(16, 40, 16, 1, torch.float32, 32), "plain", None, [1100, 9], [2, 9]),
    "latents of more heads than a tile takes": (Shape(64, 288, 16, 1, torch.float16, 272), "plain", None, [520], [2]),
}


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize("name", IN_PARTS)
def test_few_queries_behind_a_long_context_are_read_in_parts_and_equal_the_reference(
    name: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, kind, window, contexts, queries = IN_PARTS[name]
    monkeypatch.setattr(paged_attention, "num_multiprocessors", lambda _: 4)
    step = paged_step(contexts, queries, window=window, device=device, **vars(shape))
    options = options_of(kind, step.query.shape[1], window, device)
    grids = noted_grids(monkeypatch)
    in_parts, whole = mixed(gpu, step, options, 8), mixed(gpu, step, options, 1)
    assert [grid[2] > 1 for grid in grids] == [True, False]
    assert_close(in_parts, mixed(reference, step, options), shape.dtype)
    assert_close(in_parts, whole, shape.dtype)


def test_prompts_in_parts_have_the_same_bits_alone_and_beside_others(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On any number of programs. A short one also has the bits that it has where nothing is cut."""
    queries = [4, 3, 4]
    step = paged_step([30, 1100, 200], queries, num_kv_heads=1, device=device)
    options = options_of("plain", step.query.shape[1], None, device)
    whole = mixed(gpu, step, options, 1)
    monkeypatch.setattr(paged_attention, "num_multiprocessors", lambda _: 4)
    grids = noted_grids(monkeypatch)
    in_parts = mixed(gpu, step, options, 8)
    assert grids[-1][2] > 1
    for first, last in ((0, 4), (7, 11)):
        assert torch.equal(in_parts[first:last], whole[first:last])
    assert not torch.equal(in_parts[4:7], whole[4:7])
    starts = torch.tensor([0, 3], dtype=torch.int32, device=device)
    lengths, slots = step.context_lengths[1:2].clone(), step.slots[1:2].clone()
    alone = replace(step, query=step.query[4:7], context_lengths=lengths, slots=slots, query_starts=starts)
    assert torch.equal(mixed(gpu, alone, options, 8), in_parts[4:7])
    monkeypatch.setattr(paged_attention, "num_programs", lambda *numbers: 1)
    assert torch.equal(mixed(gpu, step, options, 8), in_parts)


def test_rows_of_padding_beside_prompts_in_parts_become_zeros(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paged_attention, "num_multiprocessors", lambda _: 2)
    step = paged_step([700, 600], [2, 3], num_kv_heads=1, device=device)
    slots = step.slots.clone()
    slots[1] = -1
    output = mixed(gpu, replace(step, slots=slots), options_of("sinks", step.query.shape[1], None, device))
    assert not output[:2].isnan().any()
    assert (output[2:] == 0).all()


def test_prompts_are_not_cut_where_the_workspace_has_no_room_for_their_states(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paged_attention, "num_multiprocessors", lambda _: 132)
    grids = noted_grids(monkeypatch)
    step = paged_step([700], [2], num_kv_heads=1, device=device)
    options = options_of("plain", step.query.shape[1], None, device)
    assert_close(mixed(gpu, step, options, 8), mixed(reference, step, options), torch.float32)
    assert [grid[2] for grid in grids] == [1]
