"""Tokens are drawn with exactly the probabilities that the parameters say, each parameter alone and with each other."""

import os

import numpy as np
import pytest
import torch

from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import DrawFunction
from engine.kernels.torch_operators import TorchOperators
from engine.sampling.sampler import SamplingRow, sample
from engine.sampling_params import SamplingParams
from tests.engine.kernels.libraries import library
from tests.engine.sampling.distributions import (
    EOS,
    HISTORY,
    LOGITS,
    NUM_OUTPUT,
    SMALLEST_P,
    all_pairs,
    draws,
    exact,
    p_value,
)

SINGLES: list[dict[str, object]] = [
    {"temperature": 0.6},
    {"temperature": 1.8},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.08},
    {"typical_p": 0.7},
    {"repetition_penalty": 1.6},
    {"presence_penalty": 0.9},
    {"frequency_penalty": 0.7},
    {"logit_bias": {4: 1.5, 9: -2.0}},
    {"min_tokens": 9},
    {"allowed_token_ids": (0, 2, 3, 5, 9, 11, 12, 19)},
    {"bad_words_ids": ((11,), (5, 9, 0), (5, 5), (9, 3))},
]
PAIRS = all_pairs(SINGLES)
#: The whole set is `make distributions`. The gate has fewer draws with lists of tokens: making their rows takes long.
NUM_DRAWS = int(os.environ.get("AGON_TEST_DRAWS", "20000"))
IS_WHOLE = "AGON_TEST_DRAWS" in os.environ
LISTS = ("penalty", "logit_bias", "min_tokens", "bad_words_ids")


def num_draws(settings: dict[str, object]) -> int:
    return NUM_DRAWS if IS_WHOLE or not any(part in name for name in settings for part in LISTS) else NUM_DRAWS // 10


def params_of(settings: dict[str, object]) -> SamplingParams:
    return SamplingParams(max_tokens=20, **settings)  # type: ignore[arg-type]


def functions() -> list[DrawFunction | None]:
    return [None, CppOperators(library(), torch.float32).draw]


@pytest.mark.parametrize("settings", SINGLES, ids=str)
def test_each_parameter_alone(settings: dict[str, object]) -> None:
    params = params_of(settings)
    for draw in functions():
        assert p_value(draws(params, num_draws(settings), draw), exact(params)) > SMALLEST_P


def test_each_pair_of_parameters() -> None:
    wrong = [
        settings
        for settings in PAIRS
        for draw in (functions() if IS_WHOLE else functions()[1:])
        if p_value(draws(params_of(settings), NUM_DRAWS if IS_WHOLE else 150, draw), exact(params_of(settings)))
        <= SMALLEST_P
    ]
    assert wrong == []


def test_the_test_sees_a_wrong_distribution() -> None:
    counts = draws(params_of({"temperature": 1.0}), 2000)
    assert p_value(counts, exact(params_of({"temperature": 1.2}))) < SMALLEST_P
    assert p_value(counts, exact(params_of({"top_k": 12}))) == 0.0


def test_typical_p_is_that_of_transformers() -> None:
    from transformers import TypicalLogitsWarper

    for mass in (0.1, 0.5, 0.95):
        scores = TypicalLogitsWarper(mass)(torch.zeros(1, 1, dtype=torch.long), LOGITS[None].clone())
        wanted = scores.softmax(dim=-1)[0].numpy()
        assert np.allclose(exact(params_of({"typical_p": mass})), wanted, atol=1e-6)


def test_a_token_is_the_same_alone_and_in_a_batch_of_32() -> None:
    settings = [*SINGLES, *PAIRS[:19]]
    rows = [
        SamplingRow(params_of(each), 77 + index, NUM_OUTPUT, HISTORY, (0,) if "bad_words_ids" in each else ())
        for index, each in enumerate(settings)
    ]
    assert len(rows) == 32
    logits = LOGITS + 0.3 * torch.randn(32, len(LOGITS), generator=torch.Generator().manual_seed(1))
    for draw in functions():
        argmax = TorchOperators().argmax
        together = sample(logits, rows, EOS, argmax, draw)
        alone = [sample(logits[i : i + 1], rows[i : i + 1], EOS, argmax, draw)[0] for i in range(32)]
        assert alone == together
