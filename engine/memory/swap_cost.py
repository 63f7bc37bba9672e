"""Is it cheaper to swap a preempted request or to recompute it? By what moving pages and computing tokens have cost.

Plain numbers; who measures is the runner, who asks is the scheduler.
"""

from dataclasses import dataclass

#: Weight of what is known against one more measurement: the last hundred or so count.
_DECAY = 0.99


@dataclass(frozen=True, slots=True)
class SwapCost:
    """Measured: what moving a byte and computing a token cost, and what every move costs besides."""

    seconds_per_byte: float
    seconds_per_token: float
    seconds_per_move: float = 0.0

    def is_swap_cheaper(self, num_bytes: int, num_moves: int, num_tokens: int) -> bool:
        """Out and in again, against computing that many tokens again."""
        return 2 * (num_bytes * self.seconds_per_byte + num_moves * self.seconds_per_move) < (
            num_tokens * self.seconds_per_token
        )


class CostMeter:
    """Owner of the running averages."""

    def __init__(self) -> None:
        self._steps = _Line()
        self._move_s = 0.0
        self._move_bytes = 0.0

    def note_step(self, num_tokens: int, seconds: float) -> None:
        """A step that computed that many tokens took so long, page moves not counted."""
        self._steps.add(num_tokens, seconds)

    def note_moves(self, num_bytes: int, seconds: float) -> None:
        self._move_s = _DECAY * self._move_s + seconds
        self._move_bytes = _DECAY * self._move_bytes + num_bytes

    def cost(self) -> SwapCost | None:
        """None until there is a measurement of both."""
        if not self._move_bytes or not self._steps.weight:
            return None
        return SwapCost(self._move_s / self._move_bytes, self._steps.slope())


class _Line:
    """A line through the measurements of steps, by least squares in which old ones fade.

    Its slope is what one more token costs. The plain mean would say far too much: most steps compute a few tokens and
    cost what reading all weights costs, whereas recomputing runs in large chunks.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        self.weight = _DECAY * self.weight + 1
        self._x = _DECAY * self._x + x
        self._y = _DECAY * self._y + y
        self._xx = _DECAY * self._xx + x * x
        self._xy = _DECAY * self._xy + x * y

    def slope(self) -> float:
        """Where all steps were of one size, or noise makes larger ones cheaper, the mean per token stands in."""
        variance = self.weight * self._xx - self._x**2
        covariance = self.weight * self._xy - self._x * self._y
        if variance > 1e-6 * self._x**2 and covariance > 0:
            return covariance / variance
        return self._y / self._x
