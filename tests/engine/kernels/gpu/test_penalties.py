"""Penalties and biases by the kernel are those of the reference; rows that are not named stay as they are."""

import torch

from engine.kernels.gpu.penalties import penalise
from engine.kernels.reference.penalties import penalise as by_torch
from engine.kernels.step_kernels import Penalties


def test_only_the_named_tokens_of_the_named_rows_change(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(5, 1000, generator=generator) * 4).to(device)
    token_ids = torch.stack([torch.randperm(1000, generator=generator)[:300] for _ in range(4)]).to(torch.int32)
    token_ids[1, 7:] = -1
    token_ids[3] = -1
    biases = torch.randn(4, 300, generator=generator)
    biases[0, 3] = float("-inf")
    columns = (
        token_ids,
        torch.randint(0, 3, (4, 300), generator=generator, dtype=torch.int32),
        torch.rand(4, 300, generator=generator) > 0.3,
        biases,
        torch.tensor([1.3, 0.7, 1.0, 2.0]),
        torch.tensor([0.5, 0.0, -2.0, 1.0]),
        torch.tensor([0.25, -1.0, 0.0, 1.0]),
    )
    penalties = Penalties(*(column.to(device) for column in columns))
    rows = torch.tensor([4, 0, -1, 2], device=device)
    ours, reference = logits.clone(), logits.clone()
    penalise(ours, rows, penalties)
    by_torch(reference, rows, penalties)
    torch.testing.assert_close(ours, reference, rtol=1e-6, atol=1e-6)
    assert torch.equal(ours[[1, 2, 3]], logits[[1, 2, 3]])
    assert ours[4, token_ids[0, 3]] == float("-inf")
