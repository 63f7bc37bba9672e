"""The reference of the sampling kernels draws the same tokens as the engine's CPU sampler."""

import numpy as np
import pytest
import torch

from engine.kernels.reference.logprobs import top_logprobs
from engine.kernels.reference.sampling import sample, uniform
from engine.sampling import philox
from tests.engine.kernels.sampling_cases import PARAMS, draw, expected, random_rows, special_rows

SEEDS = [0, 1, 2**31, 2**32 + 5, 2**63 + 11, 2**64 - 1]


def test_random_numbers_are_bit_equal_to_those_on_cpu() -> None:
    seeds = np.array(SEEDS * 3, dtype=np.uint64)
    counters = np.repeat(np.array([0, 7, 2**40], dtype=np.uint64), len(SEEDS))
    ours = uniform(torch.from_numpy(seeds.view(np.int64)), torch.from_numpy(counters.view(np.int64)))
    assert np.array_equal(ours.numpy(), philox.uniform(seeds, counters))


@pytest.mark.parametrize("vocab_size", [8, 1000])
def test_tokens_are_those_of_the_sampler_on_cpu(vocab_size: int) -> None:
    logits = random_rows(vocab_size)
    seeds = [2**63 + i for i in range(len(PARAMS))]
    for index in range(20):
        assert draw(sample, logits, PARAMS, seeds, index) == expected(logits, PARAMS, seeds, index)


def test_ties_and_impossible_tokens_are_treated_as_on_cpu() -> None:
    for row in special_rows(300):
        logits = row.expand(len(PARAMS), -1)
        for index in range(5):
            assert draw(sample, logits, PARAMS, range(len(PARAMS)), index) == expected(
                logits, PARAMS, range(len(PARAMS)), index
            )


def test_top_logprobs_come_in_order_and_with_the_first_of_equal_ones() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    chosen, top_ids, top = torch.empty(2), torch.empty(2, 3, dtype=torch.int64), torch.empty(2, 3)
    top_logprobs(logits, torch.tensor([2, 3]), chosen, top_ids, top)
    reference = logits.log_softmax(-1)
    assert top_ids.tolist() == [[1, 3, 2], [0, 1, 2]]
    torch.testing.assert_close(chosen, torch.stack((reference[0, 2], reference[1, 3])))
    torch.testing.assert_close(top, reference.gather(1, top_ids))
