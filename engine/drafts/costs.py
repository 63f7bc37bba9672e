"""What a step costs by the number of its tokens, learnt from the steps that have run.

Costs are not proportional: kernels compute rows in tiles, and weights are read once for all rows. So there is one mean
for each number of tokens; between two of them costs are interpolated. A number that has not occurred for a while counts
less and less against the guess, until it is tried again: the machine may be less busy now than it was.
"""

import math
from dataclasses import dataclass

#: Share of the newest step in a mean. The mean follows contexts as they grow.
_NEWEST = 0.15
#: A step may count as at most so many times the mean: other processes interrupt.
_MOST = 1.5
#: Steps after which a mean of one step counts for half; a mean of n steps lasts n times as long, up to a limit.
_HALF_LIFE, _LONGEST_HALF_LIFE = 50.0, 400.0
#: The guess beyond the largest number that is known: this share of a step's cost grows with its number of tokens.
_GROWING = 0.15


class MeanCost:
    """The mean of measured seconds, little moved by interruptions."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.num_seen = 1

    def note(self, seconds: float) -> None:
        """One more measurement."""
        if self.num_seen == 1:  # the first step of a size may be slow
            self.seconds = min(self.seconds, seconds)
        else:
            self.seconds += _NEWEST * (min(seconds, _MOST * self.seconds) - self.seconds)
        self.num_seen += 1


@dataclass(slots=True)
class _Mean:
    cost: MeanCost
    seen_at: int

    @property
    def seconds(self) -> float:
        return self.cost.seconds


class StepCosts:
    """Owner of the means. Steps with prompts are not noted: their cost depends on more than the number of tokens."""

    def __init__(self) -> None:
        self._means: dict[int, _Mean] = {}
        self._num_steps = 0
        self._last = 0  # number of tokens of the step noted last

    def note(self, num_tokens: int, seconds: float) -> None:
        """A step of decodes and verifications has computed so many tokens."""
        seconds = max(seconds, 1e-9)
        self._num_steps += 1
        self._last = num_tokens
        mean = self._means.get(num_tokens)
        if mean is None:
            self._means[num_tokens] = _Mean(MeanCost(seconds), self._num_steps)
            return
        mean.cost.note(seconds)
        mean.seen_at = self._num_steps

    @property
    def is_empty(self) -> bool:
        """Whether no step was noted yet."""
        return not self._means

    def seconds(self, num_tokens: int) -> float:
        """The expected cost of such a step. Some step was noted."""
        guess = self._guess(num_tokens)
        mean = self._means.get(num_tokens)
        if mean is None:
            return guess
        weight = self._weight(mean)
        return weight * mean.seconds + (1.0 - weight) * guess

    def _weight(self, mean: _Mean) -> float:
        half_life = min(_LONGEST_HALF_LIFE, _HALF_LIFE * mean.cost.num_seen)
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
