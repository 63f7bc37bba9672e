"""Merging attention states, against the reference."""

import pytest
import torch

from engine.kernels import gpu, reference

NUM_ROWS, NUM_HEADS, ROOM = 4, 3, 42


def states(counts: list[int], head_dim: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random states, some of them empty, and rows without any; what lies behind a row's states is NaN."""
    generator = torch.Generator().manual_seed(sum(counts))
    outputs = torch.randn(NUM_ROWS, NUM_HEADS, ROOM, head_dim, generator=generator)
    lse = torch.randn(NUM_ROWS, NUM_HEADS, ROOM, generator=generator) * 20
    is_empty = torch.rand(lse.shape, generator=generator) < 0.3
    is_empty[0], is_empty[1] = True, False
    lse[is_empty] = float("-inf")
    for row, count in enumerate(counts):
        lse[row, :, count:], outputs[row, :, count:] = float("nan"), float("nan")
    return outputs.to(device), lse.to(device), torch.tensor(counts, dtype=torch.int32, device=device)


@pytest.mark.first_minutes
@pytest.mark.parametrize("head_dim", [16, 24, 96, 256])
@pytest.mark.parametrize("counts", [[1, 1, 1, 0], [3, 8, 0, 2], [5, 9, 40, 16]])
def test_states_merge_as_the_reference_says_and_those_behind_a_rows_own_are_not_read(
    counts: list[int], head_dim: int, device: torch.device
) -> None:
    inputs = states(counts, head_dim, device)
    results = []
    for kernels in (gpu, reference):
        output = torch.empty(NUM_ROWS, NUM_HEADS, head_dim, device=device)
        kernels.merge_states(*inputs, output)
        results.append(output)
    torch.testing.assert_close(*results, atol=2e-6, rtol=2e-6)
    assert (results[0][0] == 0).all(), "a row of empty states"
    assert all((results[0][row] == 0).all() for row, count in enumerate(counts) if not count)


def test_the_bits_of_a_row_depend_neither_on_other_rows_nor_on_the_room_for_states(device: torch.device) -> None:
    outputs, lse, counts = states([5, 9, 3, 17], 64, device)
    together = torch.empty(NUM_ROWS, NUM_HEADS, 64, device=device)
    gpu.merge_states(outputs, lse, counts, together)
    for row, count in enumerate(counts.tolist()):
        alone = torch.empty(1, NUM_HEADS, 64, device=device)
        rows = slice(row, row + 1)
        gpu.merge_states(outputs[rows, :, :count], lse[rows, :, :count], counts[rows], alone)
        assert torch.equal(alone[0], together[row])


def test_a_state_alone_stays_as_it_is_to_the_last_bit(device: torch.device) -> None:
    outputs = torch.zeros((1, 1, 30, 16), device=device)
    lse = torch.full((1, 1, 30), float("-inf"), device=device)
    outputs[0, 0, 7] = torch.randn(16, generator=torch.Generator().manual_seed(0))
    lse[0, 0, 7] = 3.3
    for count in (8, 30):
        output = torch.empty(1, 1, 16, device=device)
        gpu.merge_states(outputs, lse, torch.tensor([count], dtype=torch.int32, device=device), output)
        assert torch.equal(output[0, 0], outputs[0, 0, 7])


def test_a_count_above_the_room_reads_no_further(device: torch.device) -> None:
    """The tokens of a step that no sequence has get no count: an earlier step's stays, and their output is not used."""
    outputs, lse, counts = states([5, 4, 3, 2], 16, device)
    output = torch.empty(NUM_ROWS, NUM_HEADS, 16, device=device)
    gpu.merge_states(outputs[:, :, :2], lse[:, :, :2], counts, output)
    assert not output.isnan().any()
