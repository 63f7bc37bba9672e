"""How many prompt tokens a step of one model may have in a host of several.

A step that has begun is the least that a request of another model waits, and what prompts of one model delay each
token of the others by. Knows no models and no clock: a host's core tells what steps have cost.
"""

#: Most prompt tokens of a step, beside those of decodes, while other models have work, and fewest: a step reads all
#: weights even for one.
MOST_TOKENS, LEAST_TOKENS = 256, 32
#: Prompts may make a step so much longer than one of decodes alone, or so long: a request of another model that is
#: served in some dozens of milliseconds may have to wait for one, and for another one in between.
_LONGER, _SHORT_STEP_S = 1.5, 0.016
#: How much of what is known about the cost of a token comes from the last step.
_NEWEST = 0.5


class StepBound:
    """Owner of what the steps of one model have cost lately."""

    def __init__(self) -> None:
        self._decodes_s: float | None = None  # of a step of decodes alone
        self._token_s = 0.0  # of each prompt token beside them

    def note_step(self, num_sequences: int, num_more_tokens: int, seconds: float) -> None:
        """A step of so many sequences has cost so much. num_more_tokens: beyond one for each sequence."""
        if num_more_tokens <= 0:
            if num_sequences:
                self._decodes_s = seconds
        elif self._decodes_s is not None:
            token_s = max(0.0, seconds - self._decodes_s) / num_more_tokens
            self._token_s += (_NEWEST if self._token_s else 1.0) * (token_s - self._token_s)

    def max_tokens(self, *, has_other_work: bool) -> int | None:
        """Prompt tokens of the next step; None: as many as fit into a step. has_other_work: whether other models have
        work now."""
        most = MOST_TOKENS if has_other_work else None
        if self._decodes_s is None or self._token_s <= 0.0:
            return most
        room_s = max(_LONGER * self._decodes_s, _SHORT_STEP_S) - self._decodes_s
        num_tokens = max(LEAST_TOKENS, int(room_s / self._token_s))
        return num_tokens if most is None else min(most, num_tokens)
