"""The sampling kernel draws the same tokens as the engine's CPU sampler, from the same random numbers."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from engine.kernels.gpu.sampling import sample
from engine.kernels.reference.sampling import sample as reference_sample
from engine.sampling_params import SamplingParams
from tests.engine.kernels.sampling_cases import PARAMS, PLAIN, draw, expected, random_rows, special_rows

SEEDS = [0, 2**31, 2**32 + 5, 2**63 + 11, 2**64 - 1]


@pytest.mark.parametrize("vocab_size", [8, 100, 9000])
def test_every_truncation_at_several_temperatures(vocab_size: int, device: torch.device) -> None:
    logits = random_rows(vocab_size).to(device)
    seeds = [SEEDS[i % len(SEEDS)] for i in range(len(PARAMS))]
    assert draw(sample, logits, PARAMS, seeds, 7) == expected(logits, PARAMS, seeds, 7)


def test_ties_and_impossible_tokens_are_treated_as_on_cpu(device: torch.device) -> None:
    for row in special_rows(300):
        logits = row.expand(len(PARAMS), -1).contiguous().to(device)
        seeds = range(len(PARAMS))
        assert draw(sample, logits, PARAMS, seeds, 1) == expected(logits, PARAMS, seeds, 1)


def test_many_numbers_fall_where_they_fall_on_cpu(device: torch.device) -> None:
    params = [replace(PLAIN, top_p=0.97, top_k=90), replace(PLAIN, temperature=3.0)] * 10
    row = torch.randn(700, generator=torch.Generator().manual_seed(5)) * 1.5
    logits = row.expand(len(params), -1).contiguous().to(device)
    seeds = [2**60 + 977 * i for i in range(len(params))]
    assert draw(sample, logits, params, seeds, 3) == expected(logits, params, seeds, 3)


@pytest.mark.first_minutes
@pytest.mark.parametrize("width", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("vocab_size", [500, 513, 6000])
def test_limits_are_those_of_the_cpu_for_few_candidates_and_for_many(
    vocab_size: int, width: float, device: torch.device
) -> None:
    """From flat rows, of which top-p keeps more tokens than are compared one by one, to peaked ones; with ties."""
    params = [replace(PLAIN, top_k=k, top_p=p) for k in (0, 3, 400) for p in (0.3, 0.9, 1.0)]
    rows = torch.randn(len(params), vocab_size, generator=torch.Generator().manual_seed(2)) * width
    logits = (rows * 50).round().div(50).to(device)
    seeds = [2**55 + 13 * i for i in range(len(params))]
    assert draw(sample, logits, params, seeds, 4) == expected(logits, params, seeds, 4)


def test_half_precision_and_rows_with_a_stride(device: torch.device) -> None:
    logits = random_rows(1000).to(torch.float16).to(device)
    wide = torch.full((len(PARAMS), 1040), 9.0, dtype=torch.float16, device=device)
    wide[:, :1000] = logits
    seeds = range(len(PARAMS))
    assert draw(sample, wide[:, :1000], PARAMS, seeds, 2) == expected(logits, PARAMS, seeds, 2)


@pytest.mark.first_minutes
def test_a_token_becomes_the_newest_one_of_its_slot(device: torch.device) -> None:
    """Not for padding: the element behind the last slot, and those of other slots, stay as they are."""
    rows = torch.randn(3, 200, generator=torch.Generator().manual_seed(3)).to(device)
    slots = torch.tensor([2, -1, 0], dtype=torch.int32, device=device)
    params = [SamplingParams(temperature=0.0), SamplingParams(temperature=0.0), PLAIN]
    for function in (sample, reference_sample):
        last_tokens = torch.full((5,), -7, device=device)
        tokens = draw(partial(function, slots=slots, last_tokens=last_tokens), rows, params, [0, 1, 2], 0)
        assert last_tokens.tolist()[:4] == [tokens[2], -7, tokens[0], -7]


@pytest.mark.first_minutes
def test_greedy_takes_the_first_of_the_largest(device: torch.device) -> None:
    logits = torch.zeros(3, 5000, device=device)
    logits[0, [4999, 70, 71]] = 5.0
    logits[1] = float("-inf")
    logits[1, 4500] = -1e30
    greedy = [SamplingParams(temperature=0.0)] * 3
    assert draw(sample, logits, greedy, [0, 0, 0], 0) == [70, 4500, 0]
