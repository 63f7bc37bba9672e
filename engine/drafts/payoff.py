"""Whether verification has paid: tokens per second of steps with proposed tokens, beside those of steps without.

The pace (pace.py) expects a gain from means that may be wrong or may have changed. Here the outcome is measured. Where
a few steps with proposals have not been faster, there are none for a while; the while doubles each time.
"""

from dataclasses import dataclass, field

#: What an older step still counts.
_KEPT = 0.95
#: A step may count as at most so many times the mean: other processes interrupt.
_MOST = 2.0
#: Steps with proposals after which they are judged.
_TRIAL = 8
#: Least gain, as a factor, of steps that have been judged to pay.
_LEAST_GAIN = 1.02
_SHORTEST_PAUSE, _LONGEST_PAUSE = 64, 1024


@dataclass(slots=True)
class _Speed:
    tokens: float = 0.0
    seconds: float = 0.0

    def note(self, num_tokens: int, seconds: float) -> None:
        if self.tokens:
            seconds = min(seconds, _MOST * num_tokens * self.seconds / self.tokens)
        self.tokens = self.tokens * _KEPT + num_tokens
        self.seconds = self.seconds * _KEPT + seconds

    @property
    def value(self) -> float:
        return self.tokens / self.seconds


@dataclass(slots=True)
class _OfLoad:
    """Steps of similar numbers of sequences."""

    plain: _Speed = field(default_factory=_Speed)
    drafted: _Speed = field(default_factory=_Speed)
    num_drafted: int = 0  # since the last judgement
    pause: int = 0  # steps that are left of it
    next_pause: int = _SHORTEST_PAUSE


class Payoff:
    """Owner of the measured speeds, by the number of sequences in a step."""

    def __init__(self) -> None:
        self._loads: dict[int, _OfLoad] = {}

    def note(self, num_rows: int, num_tokens: int, seconds: float, *, has_drafts: bool) -> None:
        """A step of that many sequences has given them so many tokens."""
        load = self._of(num_rows)
        load.pause = max(0, load.pause - 1)
        if not has_drafts:
            load.plain.note(num_tokens, max(seconds, 1e-9))
            return
        load.drafted.note(num_tokens, max(seconds, 1e-9))
        load.num_drafted += 1
        if load.num_drafted < _TRIAL or not load.plain.tokens:
            return
        load.num_drafted = 0
        if load.drafted.value >= _LEAST_GAIN * load.plain.value:
            load.next_pause = _SHORTEST_PAUSE
            return
        load.pause, load.next_pause = load.next_pause, min(_LONGEST_PAUSE, 2 * load.next_pause)
        load.drafted = _Speed()

    def is_paused(self, num_rows: int) -> bool:
        """Whether steps of that many sequences shall have no proposals, because they have not paid."""
        return self._of(num_rows).pause > 0

    def _of(self, num_rows: int) -> _OfLoad:
        return self._loads.setdefault(num_rows.bit_length(), _OfLoad())
