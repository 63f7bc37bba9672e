"""Penalties and biases: what transformers' processors make of the same logits, and what the APIs define beyond them."""

from dataclasses import replace

import pytest
import torch
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

from engine.errors import InvalidRequest
from engine.kernels.torch_operators import TorchOperators
from engine.sampling.penalties import penalise, penalties_of
from engine.sampling.sampler import SamplingRow, sample
from engine.sampling_params import SamplingParams

V = 40
GREEDY = SamplingParams(temperature=0.0)
PROMPT, OUTPUT = (3, 5, 5, 9), (5, 7, 7, 7)
ARGMAX = TorchOperators().argmax


def logits(rows: int = 1) -> torch.Tensor:
    return 3.0 * torch.randn(rows, V, generator=torch.Generator().manual_seed(2))


def row(params: SamplingParams, prompt: tuple[int, ...] = PROMPT, output: tuple[int, ...] = OUTPUT) -> SamplingRow:
    return SamplingRow(params, 0, len(output), prompt + output)


def changed(values: torch.Tensor, *rows: SamplingRow, eos: frozenset[int] = frozenset()) -> torch.Tensor:
    found = penalties_of(rows, eos, V, values.device)
    assert found is not None
    scores = values.clone()
    penalise(scores, *found)
    return scores


@pytest.mark.parametrize("penalty", [0.5, 1.3, 10.0])
def test_repetition_and_bias_are_those_of_transformers(penalty: float) -> None:
    values = logits()
    bias = {5: 4.0, 11: -100.0, 39: 2.5}
    input_ids = torch.tensor([PROMPT + OUTPUT])
    add_bias = SequenceBiasLogitsProcessor([[[token_id], value] for token_id, value in bias.items()])
    reference = add_bias(input_ids, values)
    reference = RepetitionPenaltyLogitsProcessor(penalty)(input_ids, reference.clone())
    ours = changed(values, row(replace(GREEDY, repetition_penalty=penalty, logit_bias=bias)))
    torch.testing.assert_close(ours, reference, rtol=1e-6, atol=0)


def test_presence_counts_once_and_frequency_every_time_in_the_output_only() -> None:
    values = logits()
    ours = changed(values, row(replace(GREEDY, presence_penalty=0.25, frequency_penalty=0.5)))
    expected = values.clone()
    expected[0, 5] -= 0.25 + 0.5
    expected[0, 7] -= 0.25 + 1.5
    torch.testing.assert_close(ours, expected)


def test_all_together_in_the_order_bias_repetition_frequency_presence() -> None:
    values = torch.zeros(1, V)
    params = replace(GREEDY, logit_bias={7: 4.0}, repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    assert float(changed(values, row(params))[0, 7]) == 4.0 / 2.0 - 3 * 0.5 - 0.25


def test_forbidden_before_min_tokens_whatever_the_bias() -> None:
    params = replace(GREEDY, min_tokens=6, logit_bias={2: 100.0}, stop_token_ids=(8,))
    ours = changed(logits(), row(params), eos=frozenset({2, V + 5}))
    assert (ours[0] == float("-inf")).nonzero().flatten().tolist() == [2, 8]


def test_rows_without_any_of_it_are_left_out() -> None:
    assert penalties_of([row(GREEDY), row(replace(GREEDY, top_k=3))], frozenset({1}), V, torch.device("cpu")) is None


def test_greedy_and_random_rows_are_drawn_from_penalised_logits() -> None:
    values = torch.zeros(2, V)
    values[:, 7] = 9.0
    values[:, 4] = 8.0
    penalised = replace(GREEDY, frequency_penalty=2.0)
    rows = [row(penalised), row(replace(penalised, temperature=0.01))]
    assert [token.token_id for token in sample(values, rows, frozenset(), ARGMAX)] == [4, 4]


def test_a_row_draws_the_same_alone_and_in_any_company() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        values = logits(5).to(dtype)
        sampled = SamplingParams(temperature=0.8, seed=1, top_p=0.9, logprobs=2)
        rows = [
            row(replace(sampled, repetition_penalty=1.5)),
            row(sampled),
            row(GREEDY),
            row(replace(GREEDY, presence_penalty=1.0), prompt=(1,), output=tuple(range(20))),
            row(replace(sampled, logit_bias={1: 5.0}, min_tokens=9)),
        ]
        together = sample(values, rows, frozenset({4}), ARGMAX)
        alone = [sample(values[i : i + 1], [rows[i]], frozenset({4}), ARGMAX)[0] for i in range(5)]
        assert together == alone


def test_log_probabilities_are_those_of_the_model() -> None:
    values = logits()
    params = replace(GREEDY, logit_bias={3: 100.0}, logprobs=1)
    (token,) = sample(values, [row(params)], frozenset(), ARGMAX)
    assert token.token_id == 3
    assert token.logprob == pytest.approx(float(values.log_softmax(-1)[0, 3]))


@pytest.mark.parametrize(
    "given",
    [
        {"repetition_penalty": 0.0},
        {"repetition_penalty": float("nan")},
        {"presence_penalty": 2.1},
        {"frequency_penalty": -2.1},
        {"logit_bias": {5: 101.0}},
        {"logit_bias": {-5: 1.0}},
        {"logit_bias": dict.fromkeys(range(301), 1.0)},
    ],
)
def test_values_beyond_their_range_are_refused_by_name(given: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        SamplingParams(**given)  # type: ignore[arg-type]
    assert refusal.value.param == next(iter(given))
