"""Drawing tokens: the distribution, its truncations, and independence from other rows of the batch."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from engine.kernels.torch_operators import TorchOperators
from engine.sampling.sampler import SamplingRow, sample
from engine.sampling_params import SamplingParams

V = 50
PLAIN = SamplingParams(temperature=1.0)
GREEDY = SamplingParams(temperature=0.0)
NO_EOS: frozenset[int] = frozenset()
ARGMAX = TorchOperators().argmax


def logits(rows: int, seed: int = 0, vocab_size: int = V) -> torch.Tensor:
    return 2.0 * torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed))


def draw_many(row: torch.Tensor, params: SamplingParams, count: int = 4000) -> Counter[int]:
    """Tokens of one position under many seeds."""
    rows = [SamplingRow(params, seed, 0) for seed in range(count)]
    return Counter(token.token_id for token in sample(row.expand(count, -1), rows, NO_EOS, ARGMAX))


def test_greedy_takes_the_likeliest_token() -> None:
    values = logits(5)
    tokens = sample(values, [SamplingRow(GREEDY, 0, 0)] * 5, NO_EOS, ARGMAX)
    assert [token.token_id for token in tokens] == values.argmax(-1).tolist()


def test_frequencies_are_those_of_the_softmax() -> None:
    row = logits(1, vocab_size=8)
    counts = draw_many(row, replace(PLAIN, temperature=1.3))
    probabilities = (row[0] / 1.3).softmax(-1)
    # Four standard deviations of a binomial.
    for token_id, probability in enumerate(probabilities.tolist()):
        deviation = (4000 * probability * (1 - probability)) ** 0.5
        assert abs(counts[token_id] - 4000 * probability) < 4 * deviation + 1


@pytest.mark.parametrize("k", [1, 3, 200])
def test_top_k_leaves_the_k_likeliest(k: int) -> None:
    row = logits(1)
    allowed = set(row[0].topk(min(k, V)).indices.tolist())
    assert set(draw_many(row, replace(PLAIN, top_k=k), 500)) <= allowed


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9])
def test_top_p_leaves_the_smallest_set_with_that_mass(top_p: float) -> None:
    row = logits(1)
    values, indices = row[0].softmax(-1).sort(descending=True)
    count = int((values.cumsum(-1) < top_p).sum()) + 1
    drawn = set(draw_many(row, replace(PLAIN, top_p=top_p)))
    assert drawn <= set(indices[:count].tolist())
    assert int(indices[0]) in drawn


def test_top_p_sees_what_top_k_has_left() -> None:
    row = torch.tensor([[3.0, 2.9, 2.8, 2.7, 2.6]])
    # The first of the two tokens that top-k leaves has more than half: alone it reaches 0.5.
    assert set(draw_many(row, replace(PLAIN, top_k=2, top_p=0.5), 300)) == {0}


def test_min_p_cuts_relative_to_the_likeliest() -> None:
    row = torch.tensor([[0.0, -1.0, -3.0]])
    # e^-1 = 0.37 and e^-3 = 0.05 of the best.
    assert set(draw_many(row, replace(PLAIN, min_p=0.2), 300)) == {0, 1}


def test_a_row_draws_the_same_alone_and_in_any_company() -> None:
    values = logits(6, seed=3)
    params = [
        PLAIN,
        replace(PLAIN, top_k=5),
        GREEDY,
        replace(PLAIN, top_p=0.7),
        replace(PLAIN, min_p=0.1, temperature=0.3),
        replace(PLAIN, top_k=3, top_p=0.9),
    ]
    for index in range(50):
        rows = [SamplingRow(p, 1000 + i, index) for i, p in enumerate(params)]
        together = sample(values, rows, NO_EOS, ARGMAX)
        alone = [sample(values[i : i + 1], [row], NO_EOS, ARGMAX)[0] for i, row in enumerate(rows)]
        assert together == alone


def test_the_output_index_and_the_seed_both_matter() -> None:
    values = torch.zeros(1, 1000)
    drawn = {
        sample(values, [SamplingRow(PLAIN, seed, index)], NO_EOS, ARGMAX)[0].token_id
        for seed in range(5)
        for index in range(5)
    }
    assert len(drawn) > 20


def test_a_tiny_temperature_is_greedy_and_no_nan() -> None:
    values = logits(4) * 100
    tokens = sample(values, [SamplingRow(replace(PLAIN, temperature=1e-30), i, 0) for i in range(4)], NO_EOS, ARGMAX)
    assert [token.token_id for token in tokens] == values.argmax(-1).tolist()


def test_before_min_tokens_neither_eos_nor_stop_tokens_are_drawn() -> None:
    values = torch.tensor([[9.0, 8.0, 7.0, 1.0]])
    params = replace(GREEDY, min_tokens=3, stop_token_ids=(1,))
    early, late = (sample(values, [SamplingRow(params, 0, index)], frozenset({0, 99}), ARGMAX) for index in (2, 3))
    assert early[0].token_id == 2
    assert late[0].token_id == 0


def test_logprobs_are_those_of_the_model_before_temperature() -> None:
    values = logits(3)
    params = SamplingParams(temperature=0.5, top_k=1, logprobs=4)
    rows = [SamplingRow(params, 1, 0), SamplingRow(GREEDY, 1, 0), SamplingRow(replace(params, logprobs=0), 1, 0)]
    tokens = sample(values, rows, NO_EOS, ARGMAX)
    reference = values.log_softmax(-1)
    assert tokens[0].logprob == pytest.approx(float(reference[0].max()))
    assert [token_id for token_id, _ in tokens[0].top_logprobs] == reference[0].topk(4).indices.tolist()
    assert (tokens[1].logprob, tokens[1].top_logprobs) == (None, ())
    assert tokens[2].logprob is not None
    assert tokens[2].top_logprobs == ()


def test_the_logits_stay_as_they_were() -> None:
    values = logits(2)
    copy = values.clone()
    rows = [SamplingRow(replace(PLAIN, top_k=2, top_p=0.5, min_p=0.1, min_tokens=5), 1, 0)] * 2
    sample(values, rows, frozenset({1}), ARGMAX)
    assert torch.equal(values, copy)
