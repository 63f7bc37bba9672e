"""Truncation without a sort of the vocabulary keeps exactly what the definition by a sort keeps."""

import pytest
import torch

from engine.kernels.reference import sampling as by_sort
from engine.sampling.filters import NUM_LEADERS, truncate
from tests.engine.kernels.sampling_cases import special_rows

TOP_P = (1e-6, 0.1, 0.5, 0.9, 0.999, 0.999999, 1.0)


def settings(rows: int, top_k: int, top_p: float, min_p: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.full((rows,), top_k), torch.full((rows,), top_p), torch.full((rows,), min_p)


def assert_same(scores: torch.Tensor, *params: torch.Tensor) -> None:
    scores = scores - scores.amax(dim=-1, keepdim=True)
    assert torch.equal(truncate(scores, *params), by_sort.truncate(scores, *params))


@pytest.mark.parametrize("vocab_size", [5, NUM_LEADERS, 5000])
@pytest.mark.parametrize("top_p", TOP_P)
def test_flat_and_peaked_rows(vocab_size: int, top_p: float) -> None:
    scores = torch.randn(8, vocab_size, generator=torch.Generator().manual_seed(vocab_size))
    scores *= torch.logspace(-3, 1.5, 8)[:, None]
    for top_k, min_p in ((0, 0.0), (100, 0.0), (0, 0.02), (2000, 0.001)):
        assert_same(scores, *settings(8, top_k, top_p, min_p))


@pytest.mark.parametrize("vocab_size", [NUM_LEADERS + 1, 3000])
@pytest.mark.parametrize("top_p", TOP_P)
def test_equal_scores_share_their_fate(vocab_size: int, top_p: float) -> None:
    scores = special_rows(vocab_size)
    for top_k in (0, 1, 70, vocab_size):
        assert_same(scores, *settings(len(scores), top_k, top_p, 0.0))


def test_what_a_row_keeps_does_not_depend_on_the_others() -> None:
    scores = torch.cat((special_rows(500), torch.randn(3, 500)))
    top_k, min_p = torch.tensor([0, 5, 0, 100, 0, 0, 7, 0]), torch.tensor([0.0] * 7 + [0.1])
    top_p = torch.tensor([0.3, 0.9, 0.5, 0.99, 1.0, 0.95, 0.2, 0.6])
    scores -= scores.amax(dim=-1, keepdim=True)
    together = truncate(scores, top_k, top_p, min_p)
    for i in range(len(scores)):
        one = slice(i, i + 1)
        assert torch.equal(truncate(scores[one], top_k[one], top_p[one], min_p[one]), together[one])
