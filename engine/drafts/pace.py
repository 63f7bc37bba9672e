"""How many proposed tokens a step verifies: as many as give the most tokens per second, which may be none.

A proposed token at place j of a sequence whose proposals are right with probability p brings p^j tokens. The likeliest
tokens of all sequences come first; a step takes as many as maximise expected tokens / expected seconds, by the costs of
steps measured so far. With many rows a further one costs as much as a step's share of each, and nothing is verified.
"""

from collections.abc import Callable
from collections.abc import Sequence as ReadOnly
from typing import NamedTuple

#: Least gain, as a factor, for which tokens are verified.
LEAST_GAIN = 1.03
#: A token that is right less often is not worth a thought.
_LEAST_PROBABILITY = 0.05


class Candidate(NamedTuple):
    """A sequence with a proposal."""

    probability: float  #: that a token is right if those before it are
    max_tokens: int


def choose_lengths(
    candidates: ReadOnly[Candidate],
    num_rows: int,
    room: int,
    seconds_of: Callable[[int], float],
    seconds_per_draft: float = 0.0,
    least_gain: float = LEAST_GAIN,
) -> list[int]:
    """How many tokens to verify of each candidate, in their order; together at most `room`.

    num_rows: tokens of the step without proposals, one for each sequence. seconds_of: the cost of a step of so many
    tokens. seconds_per_draft: what it costs to propose a token.
    """
    gains: list[tuple[float, int, int]] = []
    for index, (probability, max_tokens) in enumerate(candidates):
        gain = probability
        for place in range(1, max_tokens + 1):
            if gain < _LEAST_PROBABILITY:
                break
            gains.append((gain, -place, index))
            gain *= probability
    if not gains:
        return [0] * len(candidates)
    gains.sort(reverse=True)
    del gains[room:]
    best, num_best = num_rows / seconds_of(num_rows) * least_gain, 0
    expected = float(num_rows)
    for count, (gain, _, _) in enumerate(gains, start=1):
        expected += gain
        rate = expected / (seconds_of(num_rows + count) + count * seconds_per_draft)
        if rate > best:
            best, num_best = rate, count
    lengths = [0] * len(candidates)
    for _, _, index in gains[:num_best]:
        lengths[index] += 1
    return lengths
