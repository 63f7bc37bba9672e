"""The reference attention kernels against the textbook formula (tests/engine/attention/oracle.py)."""

import pytest
import torch

from engine.kernels.reference import attend_decode, attend_mixed
from engine.kernels.step_kernels import SplitWorkspace
from tests.engine.attention.oracle import paged_attention
from tests.engine.kernels.paged_steps import PagedStep, options_of, paged_step

WORKSPACE = SplitWorkspace.allocate(0, 0, 0, 0, torch.device("cpu"))


def mixed(step: PagedStep, kind: str, window: int | None = None) -> torch.Tensor:
    output = step.new_output()
    options = options_of(kind, step.query.shape[1], window)
    rows = (step.query, step.pages, step.page_table, step.slots, step.context_lengths, step.query_starts)
    attend_mixed(*rows, output, options, WORKSPACE, step.max_queries, int(step.context_lengths.max()), step.scales)
    return output


def wanted(step: PagedStep, kind: str, window: int | None = None) -> torch.Tensor:
    options = options_of(kind, step.query.shape[1], window)
    rows = (step.query, step.pages, step.row_tables, step.context_lengths, step.query_starts)
    return paged_attention(*rows, options, step.scales, step.value_dim)


@pytest.mark.parametrize("kind", ["plain", "softcap", "alibi", "sinks", "whole"])
@pytest.mark.parametrize("window", [None, 5])
def test_it_equals_attention_on_paper(kind: str, window: int | None) -> None:
    step = paged_step([9, 1, 17, 8, 30], [1, 1, 17, 3, 6], window=window, group_size=3, page_tokens=7)
    torch.testing.assert_close(mixed(step, kind, window), wanted(step, kind, window))


@pytest.mark.parametrize("kind", ["plain", "softcap", "sinks"])
def test_latents_are_keys_and_their_last_channels_values(kind: str) -> None:
    step = paged_step([9, 1, 17], [1, 1, 17], group_size=3, head_dim=24, value_dim=16)
    assert wanted(step, kind).shape[2] == 16
    torch.testing.assert_close(mixed(step, kind), wanted(step, kind))


@pytest.mark.parametrize("value_dim", [None, 12])
@pytest.mark.parametrize("page_dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantised_pages_are_multiplied_with_their_scales(page_dtype: torch.dtype, value_dim: int | None) -> None:
    step = paged_step([9, 17], [2, 5], page_dtype=page_dtype, value_dim=value_dim)
    torch.testing.assert_close(mixed(step, "plain"), wanted(step, "plain"))


def test_a_decode_is_a_query_of_length_one_and_padding_does_no_harm() -> None:
    step = paged_step([9, 1, 30], [1, 1, 1], window=6)
    options = options_of("sinks", step.query.shape[1], 6)
    query = torch.cat((step.query, torch.full_like(step.query[:2], float("nan"))))
    slots = torch.cat((step.slots, torch.tensor([-1, -1], dtype=torch.int32)))
    lengths = torch.cat((step.context_lengths, torch.tensor([0, 99], dtype=torch.int32)))
    output = torch.empty_like(query)
    attend_decode(query, step.pages, step.page_table, slots, lengths, output, options, WORKSPACE, step.scales)
    torch.testing.assert_close(output[:3], wanted(step, "sinks", 6))
    assert (output[3:] == 0).all()


def test_tokens_behind_the_last_row_and_rows_without_queries_are_harmless() -> None:
    step = paged_step([9, 6, 12], [4, 0, 2])
    query = torch.cat((step.query, torch.full_like(step.query[:3], float("nan"))))
    output = torch.empty_like(query)
    slots = torch.cat((step.slots, torch.tensor([-1], dtype=torch.int32)))
    lengths = torch.cat((step.context_lengths, torch.tensor([0], dtype=torch.int32)))
    starts = torch.cat((step.query_starts, step.query_starts[-1:]))
    options = options_of("plain", 4)
    attend_mixed(query, step.pages, step.page_table, slots, lengths, starts, output, options, WORKSPACE, 6, 12)
    torch.testing.assert_close(output[:6], wanted(step, "plain"))
    assert (output[6:] == 0).all()
