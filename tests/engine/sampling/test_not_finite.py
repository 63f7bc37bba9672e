"""1,000 rows that are not finite, among others, in the sampler of the CPU: with torch and with the C++ operators."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.batch import NO_TOKEN, TokenMasks
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import Operators
from engine.kernels.torch_operators import TorchOperators
from engine.sampling.sampler import SamplingRow, sample
from engine.sampling_params import SamplingParams
from tests.engine.kernels.libraries import library
from tests.engine.kernels.sampling_cases import PARAMS, PLAIN, random_rows
from tests.engine.sampling.unsound_rows import spoil

V = 130
EACH = (
    *PARAMS,
    replace(PLAIN, repetition_penalty=1.4, frequency_penalty=0.3),
    replace(PLAIN, logit_bias={3: 1.5, V - 1: -100.0}, top_k=9),
    SamplingParams(temperature=0.0, logprobs=2),
    replace(PLAIN, logprobs=0, top_p=0.7),
)
MASKS = TokenMasks(
    np.arange(0, len(EACH), 4), np.full((len(range(0, len(EACH), 4)), -(-V // 32)), 0x7FFFFFF5, np.int32)
)


@pytest.mark.parametrize("is_compiled", [False, True], ids=["torch", "C++"])
def test_they_get_no_token_and_change_no_other_row(is_compiled: bool) -> None:
    operators: Operators = CppOperators(library(), torch.float32) if is_compiled else TorchOperators()
    chance, logits, num_placed = random.Random(1), random_rows(V, EACH), 0
    rows = [SamplingRow(p, seed, 5, [1, 2, 9] if p.needs_history else None) for seed, p in enumerate(EACH)]

    def drawn(values: torch.Tensor) -> list[int]:
        functions = operators.argmax, operators.draw, operators.forbid
        return [token.token_id for token in sample(values.clone(), rows, frozenset(), *functions, MASKS)]

    wanted = drawn(logits)
    assert NO_TOKEN not in wanted
    while num_placed < 1000:
        spoilt = chance.sample(range(len(EACH)), chance.randint(4, 12))
        num_placed += len(spoilt)
        values = logits.clone()
        for row in spoilt:
            spoil(values[row], chance, visible=[0, 2, 4, 6])
        assert drawn(values) == [NO_TOKEN if row in spoilt else token for row, token in enumerate(wanted)]
