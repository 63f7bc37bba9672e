"""C++ sampling draws the same tokens as plain torch, on every instruction set that this machine can run."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from engine.kernels.cpu.operators import CppOperators
from engine.sampling.rows import SamplingRow
from engine.sampling.sampler import sample
from engine.sampling_params import SamplingParams
from tests.engine.kernels.libraries import USABLE, library

PLAIN = SamplingParams(temperature=1.0)
PARAMS = [
    SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for temperature, top_k, top_p, min_p in product((0.7, 1.5), (0, 1, 40), (1.0, 0.9, 0.3), (0.0, 0.05))
]


def drawn(operators: CppOperators | None, logits: torch.Tensor, params: list[SamplingParams], seed: int) -> list[int]:
    rows = [SamplingRow(p, seed + i, i) for i, p in enumerate(params)]
    draw = None if operators is None else operators.draw
    return [t.token_id for t in sample(logits, rows, frozenset(), lambda x: x.argmax(dim=-1), draw)]


@pytest.mark.parametrize("instruction_set", USABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("vocab_size", "spread"), [(7, 1.0), (1000, 0.1), (5003, 1.0), (49152, 4.0)])
def test_it_takes_the_tokens_that_torch_takes(
    instruction_set: str, dtype: torch.dtype, vocab_size: int, spread: float
) -> None:
    operators = CppOperators(library(instruction_set), dtype)
    logits = torch.randn(len(PARAMS), vocab_size, generator=torch.Generator().manual_seed(vocab_size)) * spread
    logits[::5, ::2] = float("-inf")  # as banned tokens have
    wanted = drawn(None, logits.to(dtype), PARAMS, 1)
    assert drawn(operators, logits.to(dtype), PARAMS, 1) == wanted
    assert len(set(wanted)) > min(5, vocab_size // 3)


@pytest.mark.parametrize(
    "params", [PLAIN, replace(PLAIN, top_k=2), replace(PLAIN, top_p=0.5), replace(PLAIN, min_p=0.5)]
)
def test_tokens_that_are_as_likely_share_their_fate(params: SamplingParams) -> None:
    operators = CppOperators(library(), torch.float32)
    logits = torch.zeros(1, 33)
    logits[0, 7] = float("-inf")
    # The last token that the filter keeps has ties, which are kept with it.
    tokens = set(drawn(operators, logits.expand(600, -1), [params] * 600, 5))
    assert tokens == {token for token in range(33) if token != 7}


def test_extreme_scores_and_temperatures_draw_the_best() -> None:
    operators = CppOperators(library(), torch.float32)
    logits = torch.randn(4, 100, generator=torch.Generator().manual_seed(0)) * 100
    logits[1, 3], logits[1, 99] = 1e30, -1e30
    params = [replace(PLAIN, temperature=1e-30, top_p=top_p) for top_p in (1.0, 1.0, 0.9, 0.01)]
    assert drawn(operators, logits, params, 3) == logits.argmax(dim=-1).tolist()


def test_a_row_draws_the_same_alone_and_in_any_company() -> None:
    operators = CppOperators(library(num_threads=3), torch.bfloat16)
    logits = torch.randn(len(PARAMS), 5003, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    together = drawn(operators, logits, PARAMS, 9)
    rows = [SamplingRow(p, 9 + i, i) for i, p in enumerate(PARAMS)]
    alone = [
        sample(logits[i : i + 1], [row], frozenset(), operators.argmax, operators.draw)[0].token_id
        for i, row in enumerate(rows)
    ]
    assert alone == together
