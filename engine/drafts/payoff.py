"""Whether proposals have paid: the measured time of steps with them, beside that of steps without for as many tokens.

The pace (pace.py) expects a gain from means that may be wrong or may have changed. Here the outcome is judged, twice.
By load: where a few steps with proposals have not been faster, there are none for a while, which doubles each time.
And in one account of seconds for all loads, which bounds the loss whatever the reason for it: proposals may lose a
small share of the time of the steps without them, and some steps' time in advance; when that is used up nothing is
proposed, nor looked up, until it has been earned again.
"""

from dataclasses import dataclass

#: Share of the time of steps without proposals that proposals may lose.
ALLOWED_LOSS = 0.01
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
    pause: int = 0  # steps that are left of it
    next_pause: int = _SHORTEST_PAUSE

    def judge(self) -> None:
        self.num_steps = 0
        if self.plain_s >= _LEAST_GAIN * self.seconds:
            self.next_pause = _SHORTEST_PAUSE
            return
        self.pause, self.next_pause = self.next_pause, min(_LONGEST_PAUSE, 2 * self.next_pause)
        self.plain_s = self.seconds = 0.0


class Payoff:
    """Owner of the judgements, by the number of sequences in a step, and of the account."""

    def __init__(self) -> None:
        self._loads: dict[int, _OfLoad] = {}
        self._allowance_s: float | None = None  # None: no step has been noted
        #: Whether what may be lost is used up: nothing shall be proposed or looked up.
        self.is_used_up = False

    def note_plain(self, num_rows: int, seconds: float) -> None:
        """A step without proposals has given each of its sequences a token."""
        self._tick(num_rows)
        self._add(ALLOWED_LOSS * seconds, seconds)

    def note_drafted(self, num_rows: int, num_tokens: int, seconds: float, plain_s: float) -> None:
        """A step with proposals has given its sequences so many tokens; proposing is part of its time. plain_s: what a
        step without takes."""
        load = self._tick(num_rows)
        saved_s = num_tokens / num_rows * plain_s
        self._add(saved_s - seconds, plain_s)
        load.plain_s = load.plain_s * _KEPT + saved_s
        load.seconds = load.seconds * _KEPT + seconds
        load.num_steps += 1
        if load.num_steps >= _TRIAL:
            load.judge()

    def note_fruitless(self, seconds: float, plain_s: float) -> None:
        """A round of proposals has given nothing to verify."""
        self._add(-seconds, plain_s)

    def is_paused(self, num_rows: int) -> bool:
        """Whether steps of that many sequences shall have no proposals, because they have not paid."""
        return self.is_used_up or self._of(num_rows).pause > 0

    def _tick(self, num_rows: int) -> _OfLoad:
        load = self._of(num_rows)
        load.pause = max(0, load.pause - 1)
        return load

    def _add(self, seconds: float, plain_s: float) -> None:
        allowance = FIRST_ALLOWANCE * plain_s if self._allowance_s is None else self._allowance_s
        self._allowance_s = min(LARGEST_ALLOWANCE * plain_s, allowance + seconds)
        if self._allowance_s < 0.0:
            self.is_used_up = True
        elif self._allowance_s >= _LEAST_ALLOWANCE * plain_s:
            self.is_used_up = False

    def _of(self, num_rows: int) -> _OfLoad:
        return self._loads.setdefault(num_rows.bit_length(), _OfLoad())
