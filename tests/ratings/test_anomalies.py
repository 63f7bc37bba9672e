"""Anomalous voters: surprise, caps on votes and on repeated prompts."""

from collections.abc import Iterator

import numpy as np
import pytest

from ratings.anomalies import anomalous_voters, beyond_prompt_cap, beyond_voter_cap, report_voters, surprise
from ratings.outcomes import PairCounts, Vote


@pytest.fixture(scope="module")
def crowd() -> list[Vote]:
    """200 honest voters with 10 votes each: good beats mid and mid beats bad in three of four votes."""
    rng = np.random.default_rng(2)

    def vote(voter: int) -> Vote:
        first, second = (("good", "mid"), ("mid", "bad"), ("good", "bad"))[rng.integers(3)]
        return Vote(first, second, "a" if rng.random() < 0.75 else "b", voter=f"honest-{voter}")

    return [vote(voter) for voter in range(200) for _ in range(10)]


def contrary(number: int) -> Iterator[Vote]:
    for _ in range(number):
        yield Vote("good", "bad", "b", voter="contrary")


def test_a_voter_who_contradicts_everyone_is_found(crowd: list[Vote]) -> None:
    votes = [*crowd, *contrary(8)]
    assert "contrary" in anomalous_voters(votes)
    assert report_voters(votes)[0].voter == "contrary"
    assert report_voters(votes)[0].surprise == pytest.approx(2**8, rel=0.6)


def test_honest_voters_are_hardly_ever_flagged(crowd: list[Vote]) -> None:
    assert len(anomalous_voters(crowd)) <= 0.05 * 200


def test_few_votes_are_never_judged(crowd: list[Vote]) -> None:
    assert "contrary" not in anomalous_voters([*crowd, *contrary(4)], limit=1)


def test_ties_say_nothing_about_a_voter(crowd: list[Vote]) -> None:
    ties = [Vote("good", "bad", "tie", voter="calm") for _ in range(50)]
    report = next(report for report in report_voters([*crowd, *ties]) if report.voter == "calm")
    assert (report.num_votes, report.surprise) == (50, 1)


def test_a_flood_of_own_votes_does_not_become_its_own_evidence(crowd: list[Vote]) -> None:
    assert "contrary" in anomalous_voters([*crowd, *contrary(3000)])


def test_a_pair_nobody_else_has_judged_proves_nothing() -> None:
    alone = [Vote("x", "y", "a", voter="first") for _ in range(30)]
    assert report_voters(alone)[0].surprise == 1


def test_early_agreement_does_not_hide_what_came_before(crowd: list[Vote]) -> None:
    agreeing = [Vote("good", "bad", "a", voter="contrary") for _ in range(40)]
    assert "contrary" in anomalous_voters([*crowd, *contrary(8), *agreeing])


def test_votes_already_flagged_are_no_evidence(crowd: list[Vote]) -> None:
    flagged = [Vote(v.model_a, v.model_b, v.outcome, voter=v.voter, flags=frozenset({"spam"})) for v in contrary(8)]
    assert "contrary" not in {report.voter for report in report_voters([*crowd, *flagged])}


def test_surprise_multiplies_the_odds_of_each_vote() -> None:
    others = PairCounts()
    others.add("x", "y", "a", 8)  # one imagined vote each makes 9 of 10
    assert surprise([Vote("x", "y", "b")] * 2, others) == pytest.approx((1 / 0.2) ** 2)
    assert surprise([Vote("y", "x", "b")] * 2, others) == 1


def test_votes_beyond_the_cap_of_a_voter_are_named_by_position() -> None:
    votes = [Vote("x", "y", "a", voter=voter) for voter in ("p", "q", "p", "p", "q")] + [Vote("x", "y", "a")] * 5
    assert beyond_voter_cap(votes, 2) == (3,)
    assert beyond_voter_cap(votes, 1) == (2, 3, 4)


def test_repeated_prompts_are_named_by_position() -> None:
    votes = [Vote("x", "y", "a", prompt=prompt) for prompt in ("hi", "hi", "why?", "hi")]
    assert beyond_prompt_cap(votes, 1) == (1, 3)


def test_flagged_votes_do_not_use_up_a_cap() -> None:
    votes = [Vote("x", "y", "a", voter="p", flags=frozenset({"identity_revealed"})), Vote("x", "y", "a", voter="p")]
    assert beyond_voter_cap(votes, 1) == ()
