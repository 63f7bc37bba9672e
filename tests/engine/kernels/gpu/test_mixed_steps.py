"""Steps of prompts and decodes with Triton kernels: prompts and decodes have launches of their own."""

from dataclasses import replace

import pytest
import torch

from engine.attention.backend import AttentionShape
from engine.kernels import gpu
from engine.memory.spec import NULL_PAGE
from tests.engine.attention.cases import TOLERANCE, Case, attend, expected, prepare
from tests.engine.attention.device_steps import NOWHERE, begin


@pytest.mark.first_minutes
def test_a_decode_has_the_same_bits_beside_a_prompt_and_without_one(device: torch.device) -> None:
    """The context of the first decode is long enough to be split into parts."""
    shape = AttentionShape(2, 1, 16)
    mixed = Case(shape, 16, starts=[600, 20, 33], lengths=[1, 1, 9], seed=0, dtype=torch.float32)
    results = []
    for lengths in ([1, 1, 9], [1, 1, 1]):
        case = replace(mixed, lengths=lengths)
        ours, oracle = prepare(case, float("nan"), NOWHERE), prepare(case, 0.0, NULL_PAGE)
        # The decodes' own tokens are the same in both.
        generator = torch.Generator().manual_seed(1)
        for tokens in (oracle.query, oracle.key_value):
            tokens[:2] = torch.randn(tokens[:2].shape, generator=generator)
        ours = replace(ours, pool=ours.pool.to(device))
        backend, layout = begin(case, ours, num_padding=0, kernels=gpu)
        results.append(attend(backend.begin(layout), 0, oracle.query.to(device), oracle.key_value.to(device)))
        wanted = expected(case, oracle, 0).flatten(1)
        torch.testing.assert_close(results[-1].cpu(), wanted, atol=TOLERANCE[case.dtype], rtol=TOLERANCE[case.dtype])
    assert torch.equal(results[0][:2], results[1][:2])
