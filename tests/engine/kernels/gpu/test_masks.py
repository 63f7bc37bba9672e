"""Masked logits equal the reference to the last bit; rows without a mask do not change."""

import pytest
import torch

from engine.kernels.gpu.masks import mask_tokens
from engine.kernels.reference import masks as by_torch

V = 3001  #: two programs for each row, and a last word that is not full


@pytest.mark.first_minutes
def test_tokens_without_a_bit_are_forbidden(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(-(2**31), 2**31, (3, -(-V // 32)), generator=generator, dtype=torch.int64).to(torch.int32)
    words[1] = 0
    mask_rows = torch.tensor([2, -1, 0, 1])
    logits = torch.randn(4, V, generator=generator).to(device)
    ours, reference = logits.clone(), logits.clone()
    for kernel, result in ((mask_tokens, ours), (by_torch.mask_tokens, reference)):
        kernel(result, mask_rows.to(device), words.to(device))
    assert torch.equal(ours, reference)
    assert torch.equal(ours[1], logits[1])
    assert bool((ours[3] == float("-inf")).all())
    for row, mask_row in ((0, 2), (2, 0)):
        is_allowed = torch.tensor([bool(int(words[mask_row, t // 32]) >> t % 32 & 1) for t in range(V)])
        assert torch.equal(ours[row].cpu() == logits[row].cpu(), is_allowed)
