"""Whether proposals have paid: the measured time of steps with them, beside that of steps without for as many tokens.

The pace (pace.py) expects a gain from means that may be wrong or may have changed. Here the outcome is judged, twice.
By load: where a few steps with proposals have not been faster, there are none for a while, which doubles each time.
And in one account of seconds for all loads, which bounds the loss whatever the reason for it: proposals may lose a
small share of the time of the steps without them, and some steps' time in advance; when that is used up nothing is
proposed, nor looked up, for as many steps as earn a trial. Steps are counted by the caller.
"""

import math
from dataclasses import dataclass

#: Share of the time of steps without proposals that proposals may lose, as far as it is seen.
ALLOWED_LOSS = 0.005
#: What may be lost at the beginning, and the most that gains and time are saved up to, in steps without proposals: a
#: draft model computes a prompt before it gains anything.
FIRST_ALLOWANCE, LARGEST_ALLOWANCE = 20.0, 24.0
#: What must have been earned before anything is proposed again: enough for a trial.
_LEAST_ALLOWANCE = 2.0
#: What an older step still counts in the judgement of a load.
_KEPT = 0.95
#: Steps with proposals after which they are judged.
_TRIAL = 8
#: Least gain, as a factor, of steps that have been judged to pay.
_LEAST_GAIN = 1.02
_SHORTEST_PAUSE, _LONGEST_PAUSE = 64, 1024


@dataclass(slots=True)
class _OfLoad:
    """Steps with proposals of similar numbers of sequences."""

    plain_s: float = 0.0  # what as many tokens would have taken without
    seconds: float = 0.0
    num_steps: int = 0  # since the last judgement
    paused_until: int = 0  # number of a step
    next_pause: int = _SHORTEST_PAUSE

    def judge(self, step: int) -> None:
        self.num_steps = 0
        if self.plain_s >= _LEAST_GAIN * self.seconds:
            self.next_pause = _SHORTEST_PAUSE
            return
        self.paused_until = step + self.next_pause
        self.next_pause = min(_LONGEST_PAUSE, 2 * self.next_pause)
        self.plain_s = self.seconds = 0.0


class Payoff:
    """Owner of the judgements, by the number of sequences in a step, and of the account."""

    def __init__(self) -> None:
        self._loads: dict[int, _OfLoad] = {}
        self._allowance_s: float | None = None  # None: nothing has been noted

    def note_plain(self, plain_s: float, spent_s: float = 0.0, num_steps: int = 1) -> None:
        """So many steps without proposals have taken plain_s each. spent_s: on proposals that came to nothing."""
        self._add(ALLOWED_LOSS * plain_s * num_steps - spent_s, plain_s)

    def note_drafted(self, num_rows: int, num_tokens: int, seconds: float, plain_s: float, step: int) -> None:
        """A step with proposals has given its sequences so many tokens; proposing is part of its time. plain_s: what a
        step without takes. step: its number."""
        saved_s = num_tokens / num_rows * plain_s
        self._add(saved_s - seconds, plain_s)
        load = self._loads.setdefault(num_rows.bit_length(), _OfLoad())
        load.plain_s = load.plain_s * _KEPT + saved_s
        load.seconds = load.seconds * _KEPT + seconds
        load.num_steps += 1
        if load.num_steps >= _TRIAL:
            load.judge(step)

    def is_paused(self, num_rows: int, step: int) -> bool:
        """Whether step `step`, of that many sequences, shall have no proposals, because they have not paid."""
        load = self._loads.get(num_rows.bit_length())
        return load is not None and step < load.paused_until

    def num_closed_steps(self, plain_s: float) -> int:
        """How many steps, of plain_s each, shall pass before anything is proposed again; 0: something may be lost."""
        if self._allowance_s is None or self._allowance_s >= 0.0:
            return 0
        return math.ceil((_LEAST_ALLOWANCE - self._allowance_s / plain_s) / ALLOWED_LOSS)

    def _add(self, seconds: float, plain_s: float) -> None:
        allowance = FIRST_ALLOWANCE * plain_s if self._allowance_s is None else self._allowance_s
        self._allowance_s = min(LARGEST_ALLOWANCE * plain_s, allowance + seconds)
