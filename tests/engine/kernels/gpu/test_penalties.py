"""Biases and penalties of the kernels equal the reference to the last bit; other logits do not change."""

import pytest
import torch

from engine.kernels.gpu.penalties import add_biases, penalise
from engine.kernels.reference import penalties as by_torch

V = 3000  #: two programs for each row


def _logits(num_rows: int, device: torch.device) -> torch.Tensor:
    return (torch.randn(num_rows, V, generator=torch.Generator().manual_seed(0)) * 4).to(device)


@pytest.mark.first_minutes
def test_only_the_named_tokens_get_their_bias(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(1)
    token_ids = torch.stack([torch.randperm(V, generator=generator)[:300] for _ in range(3)]).to(torch.int32)
    token_ids[1, 7:] = -1
    biases = torch.randn(3, 300, generator=generator)
    biases[0, 3] = float("-inf")
    logits = _logits(3, device)
    ours, reference = logits.clone(), logits.clone()
    for kernel, result in ((add_biases, ours), (by_torch.add_biases, reference)):
        kernel(result, token_ids.to(device), biases.to(device))
    assert torch.equal(ours, reference)
    assert ours[0, token_ids[0, 3]] == float("-inf")
    assert (ours[1] != logits[1]).sum() == 7


@pytest.mark.first_minutes
def test_only_tokens_that_have_occurred_pay(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(2)
    counts = torch.randint(0, 8, (5, V), generator=generator, dtype=torch.int32)
    counts[:, torch.rand(V, generator=generator) < 0.7] = 0
    counts[2, 0] = 2**20
    slots = torch.tensor([4, 0, -1, 2])
    columns = (
        torch.tensor([1.3, 0.7, 9.0, 1.0]),
        torch.tensor([0.5, 0.0, 9.0, -1.7]),
        torch.tensor([0.1, -1.1, 9.0, 0.3]),
    )
    logits = _logits(4, device)
    ours, reference = logits.clone(), logits.clone()
    for kernel, result in ((penalise, ours), (by_torch.penalise, reference)):
        kernel(result, slots.to(device), counts.to(device), *(column.to(device) for column in columns))
    assert torch.equal(ours, reference)
    assert torch.equal(ours[2], logits[2])
    assert torch.equal((ours != logits)[0].cpu(), counts[4] > 0)
