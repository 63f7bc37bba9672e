"""Votes that should not count: voters who contradict all other voters, voters beyond their cap, and prompts repeated
too often.

Nothing here changes a vote: the caller writes flags into the log and folds only votes without flags.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ratings.outcomes import Outcome, PairCounts, Vote

SURPRISE_LIMIT = 20.0  #: 1 / alpha: an honest voter ever gets past it with probability 5 % at most (Ville's inequality)
MIN_VOTES = 5


@dataclass(frozen=True, slots=True)
class VoterReport:
    """One voter: number of votes, and the largest value that the martingale reached."""

    voter: str
    num_votes: int
    surprise: float


def surprise(votes: Iterable[Vote], others: PairCounts) -> float:
    """Largest value of prod 1 / (2 p_j) over the first j decisive votes of one voter.

    p_j is the share of the others' decisive votes on the same pair that agree with vote j, with one imagined vote for
    each side. Under honest voting the product is a martingale that starts at 1. `others` must not contain the voter's
    own votes.
    """
    return _surprise(votes, others, PairCounts())


def report_voters(votes: Sequence[Vote], *, min_votes: int = MIN_VOTES) -> tuple[VoterReport, ...]:
    """A report on every voter with at least `min_votes` votes, the most surprising first. Flagged votes are
    left out."""
    by_voter: dict[str, list[Vote]] = defaultdict(list)
    all_counts = PairCounts()
    for vote in votes:
        if vote.flags:
            continue
        all_counts.add(vote.model_a, vote.model_b, vote.outcome, vote.weight)
        if vote.voter is not None:
            by_voter[vote.voter].append(vote)
    reports = []
    for voter, own_votes in by_voter.items():
        num_votes = sum(vote.weight for vote in own_votes)
        if num_votes >= min_votes:
            peak = _surprise(own_votes, all_counts, PairCounts.from_votes(own_votes))
            reports.append(VoterReport(voter, num_votes, peak))
    return tuple(sorted(reports, key=lambda report: (-report.surprise, report.voter)))


def anomalous_voters(
    votes: Sequence[Vote], *, limit: float = SURPRISE_LIMIT, min_votes: int = MIN_VOTES
) -> frozenset[str]:
    """Voters whose surprise passed the limit."""
    return frozenset(report.voter for report in report_voters(votes, min_votes=min_votes) if report.surprise > limit)


def beyond_voter_cap(votes: Iterable[Vote], cap: int) -> tuple[int, ...]:
    """Positions of votes after a voter's first `cap`. The caller chooses the span, for instance one day of votes."""
    return _beyond(votes, cap, lambda vote: vote.voter)


def beyond_prompt_cap(votes: Iterable[Vote], cap: int) -> tuple[int, ...]:
    """Positions of votes after the first `cap` on equal prompts."""
    return _beyond(votes, cap, lambda vote: vote.prompt)


def _beyond(votes: Iterable[Vote], cap: int, key: Callable[[Vote], str | None]) -> tuple[int, ...]:
    seen: Counter[str] = Counter()
    beyond = []
    for position, vote in enumerate(votes):
        name = key(vote)
        if name is None or vote.flags:
            continue
        seen[name] += vote.weight
        if seen[name] > cap:
            beyond.append(position)
    return tuple(beyond)


def _surprise(votes: Iterable[Vote], all_counts: PairCounts, own: PairCounts) -> float:
    value = peak = 1.0
    for vote in votes:
        outcome = Outcome(vote.outcome)
        if outcome not in (Outcome.A, Outcome.B):
            continue
        a_won, b_won, _ = all_counts.results(vote.model_a, vote.model_b)
        own_a_won, own_b_won, _ = own.results(vote.model_a, vote.model_b)
        for_a, for_b = a_won - own_a_won + 1, b_won - own_b_won + 1
        share = (for_a if outcome is Outcome.A else for_b) / (for_a + for_b)
        value *= math.pow(2.0 * share, -vote.weight)
        peak = max(peak, value)
    return peak
