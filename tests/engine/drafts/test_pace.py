"""How many tokens are verified: as many as pay, by measured costs and by how often proposals were right."""

import random
from itertools import product

import pytest

from engine.drafts.acceptance import Acceptance
from engine.drafts.costs import RoundCosts, StepCosts
from engine.drafts.pace import Candidate, choose_lengths


def flat(num_tokens: int) -> float:
    """A step costs the same with any number of tokens."""
    return 1.0


def proportional(num_tokens: int) -> float:
    return float(num_tokens)


def test_where_a_token_more_costs_nothing_all_that_may_be_right_are_verified() -> None:
    assert choose_lengths([Candidate(0.5, 6), Candidate(0.9, 3), Candidate(0.01, 3)], 3, 100, flat) == [4, 3, 0]


def test_where_it_costs_a_share_of_the_step_none_is() -> None:
    assert choose_lengths([Candidate(0.99, 8)] * 4, 4, 100, proportional) == [0] * 4


def test_the_room_goes_to_the_likeliest_tokens() -> None:
    assert choose_lengths([Candidate(0.3, 8), Candidate(0.9, 8), Candidate(0.0, 0)], 3, 4, flat) == [0, 4, 0]


def test_what_proposing_costs_counts() -> None:
    assert choose_lengths([Candidate(0.8, 4)], 1, 8, flat, seconds_per_draft=0.1) == [4]
    assert choose_lengths([Candidate(0.8, 4)], 1, 8, flat, seconds_per_draft=0.9) == [0]


@pytest.mark.parametrize("seed", range(20))
def test_no_other_choice_is_expected_to_give_more_tokens_per_second(seed: int) -> None:
    numbers = random.Random(seed)
    candidates = [Candidate(numbers.random(), numbers.randint(0, 3)) for _ in range(3)]
    base, slope = numbers.uniform(0.2, 2.0), numbers.uniform(0.1, 0.5)

    def seconds(num_tokens: int) -> float:
        return base + slope * num_tokens

    def rate(lengths: tuple[int, ...]) -> float:
        pairs = zip(candidates, lengths, strict=True)
        expected = 3 + sum(c.probability**place for c, length in pairs for place in range(1, length + 1))
        return expected / seconds(3 + sum(lengths))

    chosen = tuple(choose_lengths(candidates, 3, 99, seconds, least_gain=1.0))
    best = max(rate(lengths) for lengths in product(*(range(c.max_tokens + 1) for c in candidates)))
    assert rate(chosen) == pytest.approx(best)


def test_costs_are_means_interpolated_between_numbers_of_tokens() -> None:
    costs = StepCosts()
    for _ in range(50):
        costs.note(1, 1.0)
        costs.note(9, 3.0)
    assert costs.seconds(1) == pytest.approx(1.0, rel=0.01)
    assert costs.seconds(5) == pytest.approx(2.0, rel=0.01)
    assert costs.seconds(9) == pytest.approx(3.0, rel=0.01)
    assert costs.seconds(18) > 3.0


def test_a_draft_model_pays_for_the_prompts_that_it_computes() -> None:
    costs = RoundCosts()
    assert costs.seconds_per_token is None
    for _ in range(100):
        costs.note(4, 4.0)
    assert costs.seconds_per_token == pytest.approx(1.0)
    for _ in range(100):
        costs.note_prompts(2, 64.0)
    assert costs.seconds_per_token == pytest.approx(1.5, rel=0.01)


def test_a_step_that_was_interrupted_moves_a_mean_little() -> None:
    costs = StepCosts()
    for _ in range(20):
        costs.note(1, 1.0)
    costs.note(1, 500.0)
    assert costs.seconds(1) < 1.1


def test_a_cost_that_was_measured_long_ago_is_doubted() -> None:
    costs = StepCosts()
    costs.note(1, 1.0)
    costs.note(5, 40.0)  # the machine was busy
    assert costs.seconds(5) > 30.0
    for _ in range(200):
        costs.note(1, 1.0)
    assert costs.seconds(5) < 5.0


def test_acceptance_is_learnt_of_each_sequence_and_source() -> None:
    acceptance = Acceptance(2)
    for _ in range(30):
        acceptance.note(1, 0, (5, 6, 7), (5, 6, 7))
        acceptance.note(2, 0, (5, 6, 7), (9, 6, 7))
    assert acceptance.probability(1, 0) > 0.9
    assert acceptance.probability(2, 0) < 0.2
    assert 0.3 < acceptance.probability(3, 0) < 0.9  # as others on average
    assert acceptance.probability(1, 1) == pytest.approx(0.5)
    acceptance.forget(1)
    assert acceptance.probability(1, 0) == acceptance.probability(3, 0)


def test_tokens_after_a_wrong_one_tell_nothing() -> None:
    one, other = Acceptance(1), Acceptance(1)
    one.note(1, 0, (5, 6, 7), (5, 9, 7))
    other.note(1, 0, (5, 6), (5, 9))
    assert one.probability(1, 0) == other.probability(1, 0)
