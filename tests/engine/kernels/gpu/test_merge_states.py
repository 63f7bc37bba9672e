"""Merging attention states, against the reference."""

import pytest
import torch

from engine.kernels import gpu, reference

NUM_ROWS, NUM_HEADS = 3, 2


@pytest.mark.parametrize(("num_states", "head_dim"), [(1, 24), (3, 16), (40, 256)])
def test_states_merge_as_the_reference_says_and_empty_ones_are_not_read(
    num_states: int, head_dim: int, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(num_states)
    outputs = torch.randn(NUM_ROWS, NUM_HEADS, num_states + 2, head_dim, generator=generator).to(device)
    lse = (torch.randn(NUM_ROWS, NUM_HEADS, num_states + 2, generator=generator) * 20).to(device)
    is_empty = (torch.rand(lse.shape, generator=generator) < 0.3).to(device)
    is_empty[0], is_empty[1] = True, False
    lse[is_empty], outputs[is_empty] = float("-inf"), float("nan")
    outputs, lse = outputs[:, :, :num_states], lse[:, :, :num_states]
    results = []
    for kernels in (gpu, reference):
        output = torch.empty(NUM_ROWS, NUM_HEADS, head_dim, device=device)
        kernels.merge_states(outputs, lse, output)
        results.append(output)
    torch.testing.assert_close(*results, atol=2e-6, rtol=2e-6)
    assert (results[0][0] == 0).all()


def test_a_state_alone_stays_as_it_is_to_the_last_bit(device: torch.device) -> None:
    outputs = torch.full((1, 1, 30, 16), float("nan"), device=device)
    lse = torch.full((1, 1, 30), float("-inf"), device=device)
    outputs[0, 0, 7] = torch.randn(16, generator=torch.Generator().manual_seed(0))
    lse[0, 0, 7] = 3.3
    output = torch.empty(1, 1, 16, device=device)
    gpu.merge_states(outputs, lse, output)
    assert torch.equal(output[0, 0], outputs[0, 0, 7])
