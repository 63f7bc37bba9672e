"""Log probabilities of the kernel equal log_softmax, in descending order, ties by token id."""

import pytest
import torch

from engine.kernels.gpu.logprobs import top_logprobs
from engine.kernels.reference.logprobs import top_logprobs as by_torch
from engine.kernels.step_kernels import SamplingWorkspace
from tests.engine.kernels.sampling_cases import special_rows


@pytest.mark.first_minutes
@pytest.mark.parametrize(("vocab_size", "k"), [(30, 30), (300, 5), (9000, 20), (5000, 0)])
def test_the_likeliest_tokens_and_the_drawn_one(vocab_size: int, k: int, device: torch.device) -> None:
    flat = torch.randn(2, vocab_size, generator=torch.Generator().manual_seed(3)) * torch.tensor([[0.1], [5.0]])
    logits = torch.cat((flat, special_rows(vocab_size))).to(device)
    token_ids = torch.arange(len(logits), device=device) * 3
    token_ids[3] = vocab_size // 2  # the only token of its row that is possible
    rows = len(logits)
    results = []
    for kernel in (top_logprobs, by_torch):
        chosen, top = torch.full((rows,), 9.0, device=device), torch.full((rows, k), 9.0, device=device)
        top_ids = torch.full((rows, k), -9, device=device)
        kernel(logits, token_ids, chosen, top_ids, top, SamplingWorkspace.allocate(rows, vocab_size, logits.device))
        results.append((chosen, top_ids, top))
    ours, reference = results
    torch.testing.assert_close(ours[0], reference[0], rtol=1e-5, atol=1e-5)
    assert torch.equal(ours[1], reference[1])
    torch.testing.assert_close(ours[2], reference[2], rtol=1e-5, atol=1e-5)
