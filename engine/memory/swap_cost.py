"""Whether it is cheaper to swap a preempted request or to recompute it, from measured costs of moves and of tokens.

Plain numbers: the runner measures, the scheduler decides.
"""

from dataclasses import dataclass

#: Weight of earlier measurements for each new one: about the last hundred count.
_DECAY = 0.99


@dataclass(frozen=True, slots=True)
class SwapCost:
    """Measured costs of moving a byte, of computing a token, and of every move in addition to its bytes."""

    seconds_per_byte: float
    seconds_per_token: float
    seconds_per_move: float = 0.0

    def is_swap_cheaper(self, num_bytes: int, num_moves: int, num_tokens: int) -> bool:
        """Whether moving these pages out and in costs less than computing that many tokens again."""
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
        """A step computed that many tokens in that time, page moves not counted."""
        self._steps.add(num_tokens, seconds)

    def note_moves(self, num_bytes: int, seconds: float) -> None:
        """Page moves of that many bytes took that time."""
        self._move_s = _DECAY * self._move_s + seconds
        self._move_bytes = _DECAY * self._move_bytes + num_bytes

    def cost(self) -> SwapCost | None:
        """The averages so far; None until there is a measurement of a step and of a move."""
        if not self._move_bytes or not self._steps.weight:
            return None
        return SwapCost(self._move_s / self._move_bytes, self._steps.slope())


class _Line:
    """A line through the measurements of steps, by least squares with exponentially decaying weights.

    Its slope is the cost of one more token. The plain mean would be far too high: most steps compute a few tokens and
    take the time of reading all weights, whereas recomputation runs in large chunks.
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
        """Where all steps had one size, or noise makes larger ones look cheaper, the mean per token is used instead."""
        variance = self.weight * self._xx - self._x**2
        covariance = self.weight * self._xy - self._x * self._y
        if variance > 1e-6 * self._x**2 and covariance > 0:
            return covariance / variance
        return self._y / self._x
