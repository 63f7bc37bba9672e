"""What a step costs by the number of its tokens, learnt from the steps that have run.

Costs are not proportional: kernels compute rows in tiles, and weights are read once for all rows. So there is one mean
for each number of tokens, large ones rounded; between two of them costs are interpolated. A number that has not
occurred for a while counts less and less against the guess, until it is tried again: the machine may be less busy now.
"""

import math
from dataclasses import dataclass

#: Share of the newest step in a mean, times the steps since the one before, and the largest share. The mean follows
#: contexts as they grow, and the machine as it becomes faster or slower.
_NEWEST, _LARGEST_SHARE = 0.1, 0.3
#: A step may count as at most so many times the mean: other processes interrupt.
_MOST = 1.5
#: Steps after which a mean of one step counts for half; a mean of n steps lasts n times as long, up to a limit.
_HALF_LIFE, _LONGEST_HALF_LIFE = 50.0, 400.0
#: The guess beyond the largest number that is known: this share of a step's cost grows with its number of tokens.
_GROWING = 0.15
#: Steps after which answers are computed anew, unless a number of tokens is new: that takes longer than a proposal.
_REFRESH = 16
#: Steps for which a mean is a measure for others.
_LATELY = 64
#: A draft model's round may count as at most so many times the mean; what an older round still counts.
_MOST_OF_ROUND, _KEPT_OF_ROUNDS = 3.0, 0.95
#: Tokens of an answer over which the draft model's cost of its prompt is spread.
_ANSWER_TOKENS = 64


class RoundCosts:
    """What a draft model's tokens cost, by rounds. The prompts that it computes are spread over the tokens of an answer
    of usual length; whether shorter ones pay is seen in the outcome (payoff.py)."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._tokens = 0.0
        self._prompt_s = 0.0

    def note(self, num_tokens: int, seconds: float) -> None:
        """So many tokens have been proposed in that time, without new prompts."""
        if self._tokens:
            seconds = min(seconds, _MOST_OF_ROUND * max(1, num_tokens) * self._seconds / self._tokens)
        self._seconds = self._seconds * _KEPT_OF_ROUNDS + seconds
        self._tokens = self._tokens * _KEPT_OF_ROUNDS + num_tokens

    def note_prompts(self, num_prompts: int, seconds: float) -> None:
        """That many new prompts have been computed in that time."""
        self._prompt_s += _NEWEST * (seconds / num_prompts - self._prompt_s)

    @property
    def seconds_per_token(self) -> float | None:
        """Cost in the last rounds; None: there was none."""
        return self._seconds / self._tokens + self._prompt_s / _ANSWER_TOKENS if self._tokens else None


@dataclass(slots=True)
class _Mean:
    seconds: float
    seen_at: int
    num_seen: int = 1

    def note(self, seconds: float, step: int) -> None:
        if self.num_seen == 1:  # the first step of a size may be slow
            self.seconds = min(self.seconds, seconds)
        else:
            share = min(_LARGEST_SHARE, _NEWEST * (step - self.seen_at))
            self.seconds += share * (min(seconds, _MOST * self.seconds) - self.seconds)
        self.num_seen += 1
        self.seen_at = step


class StepCosts:
    """Owner of the means. Steps with prompts are not noted: their cost depends on more than the number of tokens.
    Answers may be some steps old (_REFRESH)."""

    def __init__(self) -> None:
        self._means: dict[int, _Mean] = {}
        self._num_steps = 0
        self._refresh_at = 0
        self._last = 0  # number of tokens of the step noted last
        self._expected: dict[int, float] = {}  # answers, until the means have changed a little

    def note(self, num_tokens: int, seconds: float) -> float:
        """A step of decodes and verifications has computed so many tokens. Returns the mean of such steps."""
        num_tokens, seconds = _size(num_tokens), max(seconds, 1e-9)
        self._num_steps += 1
        self._last = num_tokens
        mean = self._means.get(num_tokens)
        if mean is None or mean.num_seen == 1 or self._num_steps >= self._refresh_at:
            self._expected.clear()
            self._refresh_at = self._num_steps + _REFRESH
        if mean is None:
            mean = self._means[num_tokens] = _Mean(seconds, self._num_steps)
        else:
            mean.note(seconds, self._num_steps)
        return mean.seconds

    def note_others(self, num_steps: int) -> None:
        """So many steps have run whose costs are not known: what has been noted is that much older."""
        self._num_steps += num_steps

    @property
    def largest(self) -> int:
        """The largest number of tokens of a step that has been noted, as it was rounded; 0: none."""
        return max(self._means, default=0)

    def is_known(self, num_tokens: int) -> bool:
        """Whether a step of that size has been noted lately, so that others can be compared with it."""
        mean = self._means.get(_size(num_tokens))
        return mean is not None and self._num_steps - mean.seen_at <= _LATELY

    def seconds(self, num_tokens: int) -> float:
        """The expected cost of such a step. Some step was noted."""
        num_tokens = _size(num_tokens)
        expected = self._expected.get(num_tokens)
        if expected is None:
            expected = self._expected[num_tokens] = self._expect(num_tokens)
        return expected

    def _expect(self, num_tokens: int) -> float:
        guess = self._guess(num_tokens)
        mean = self._means.get(num_tokens)
        if mean is None:
            return guess
        weight = self._weight(mean)
        return weight * mean.seconds + (1.0 - weight) * guess

    def _weight(self, mean: _Mean) -> float:
        half_life = min(_LONGEST_HALF_LIFE, _HALF_LIFE * mean.num_seen)
        return math.pow(0.5, (self._num_steps - mean.seen_at) / half_life)

    def _guess(self, num_tokens: int) -> float:
        """From the nearest numbers that have been seen lately."""
        lately = [count for count, mean in self._means.items() if count != num_tokens and self._weight(mean) > 0.5]
        below = max((count for count in lately if count < num_tokens), default=None)
        above = min((count for count in lately if count > num_tokens), default=None)
        if below is None:
            nearest = self._last if above is None else above
            return self._means[nearest].seconds * math.pow(max(0.5, num_tokens / nearest), _GROWING)
        base = self._means[below].seconds
        if above is None:
            return base * (1.0 + _GROWING * (num_tokens / below - 1.0))
        share = (num_tokens - below) / (above - below)
        return base + share * (self._means[above].seconds - base)


def _size(num_tokens: int) -> int:
    """The number of tokens under which a step is noted: means of few steps are noise."""
    if num_tokens <= 16:
        return num_tokens
    unit = 4 if num_tokens <= 64 else 16
    return -(-num_tokens // unit) * unit
