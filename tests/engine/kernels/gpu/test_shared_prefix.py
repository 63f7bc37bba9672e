"""Decode attention with a shared prefix, against the reference, which runs an ordinary decode."""

from itertools import pairwise

import pytest
import torch

from engine.kernels import gpu, reference
from engine.kernels.step_kernels import AttentionOptions, SplitWorkspace, StepKernels
from tests.engine.kernels.paged_steps import PagedStep, options_of, paged_step

#: Rows 0-3 share 560 tokens and 6-7 share 16; those between share none, and the last one is padding.
PREFIXES, GROUPS = [560, 560, 560, 560, 0, 0, 16, 16, 0], [0, 4, 6, 8, 9]
CONTEXTS = [561, 600, 580, 900, 5, 300, 17, 40]


def _step(
    device: torch.device, prefixes: list[int], dtype: torch.dtype, group_size: int = 3, value_dim: int | None = None
) -> PagedStep:
    step = paged_step(
        CONTEXTS,
        [1] * 8,
        group_size=group_size,
        num_kv_heads=1,
        head_dim=16 if value_dim is None else value_dim + 8,
        value_dim=value_dim,
        page_tokens=16,
        dtype=dtype,
        device=device,
    )
    table, slots = step.page_table, step.slots.tolist()
    for first, last in pairwise(GROUPS[:-1]):
        num_shared = prefixes[first] // 16
        for slot in slots[first:last]:
            table[slot, :num_shared] = table[slots[first], :num_shared]
    return step


def _attend(kernels: StepKernels, step: PagedStep, options: AttentionOptions, splits: int = 4) -> torch.Tensor:
    device = step.query.device
    last_row = torch.tensor([-1], dtype=torch.int32, device=device)
    query = torch.cat((step.query, torch.full_like(step.query[:1], float("nan"))))
    lengths = torch.cat((step.context_lengths, torch.zeros_like(last_row)))
    output = query.new_empty((*query.shape[:2], step.value_dim))
    workspace = SplitWorkspace.allocate(len(query), query.shape[1], splits, step.value_dim, device)
    workspace.outputs.fill_(float("nan"))
    workspace.lse.fill_(float("nan"))
    workspace.counts.fill_(99)
    rows = (query, step.pages, step.page_table, torch.cat((step.slots, last_row)), lengths)
    groups, prefixes = (torch.tensor(numbers, dtype=torch.int32, device=device) for numbers in (GROUPS, PREFIXES))
    kernels.attend_shared_prefix(*rows, groups, prefixes, output, options, workspace)
    return output


@pytest.mark.first_minutes(2)
@pytest.mark.parametrize(
    ("kind", "group_size", "value_dim"),
    [
        ("plain", 3, None),
        ("softcap", 3, None),
        ("alibi", 3, None),
        ("sinks", 3, None),
        ("sinks", 3, 16),
        ("plain", 16, 272),  # tiles of 64 rows, whose values two programs share
    ],
)
def test_prefix_and_suffix_merged_are_the_whole_context(
    kind: str, group_size: int, value_dim: int | None, device: torch.device
) -> None:
    dtype = torch.float16 if kind == "plain" else torch.float32
    step = _step(device, PREFIXES, dtype, group_size, value_dim)
    options = options_of(kind, group_size, None, device)
    tolerance = 2e-3 if kind == "plain" else 2e-5
    expected = _attend(reference, step, options)
    torch.testing.assert_close(_attend(gpu, step, options), expected, atol=tolerance, rtol=tolerance)
    assert (expected[-1] == 0).all()


def test_a_window_and_a_workspace_of_one_split_are_refused(device: torch.device) -> None:
    step = _step(device, PREFIXES, torch.float32)
    with pytest.raises(ValueError, match="window"):
        _attend(gpu, step, options_of("plain", 3, 64, device))
    with pytest.raises(ValueError, match="two splits"):
        _attend(gpu, step, options_of("plain", 3, None, device), splits=1)
