"""Whose turn it is: a deficit round robin over what steps cost, in seconds.

Every model with work is owed an equal part of the time. What a step of one model has taken is credited to the others;
the model that is owed most goes next. A token is no fair measure: one that is decoded costs as much as dozens of a
prompt, because a step reads all weights. Where all tokens cost the same, this is a deficit round robin over tokens.
Knows no models but their names, and no clock.
"""

from collections.abc import Iterable

#: Most steps of other models between two steps of a model with work, where these are no more than so many.
MAX_FOREIGN_STEPS = 8
#: What a model is owed when it gets work while others have some: it goes first, so that its request takes at most twice
#: its time alone beside one other model, the wait for that one's present step included.
_WELCOME_S = 0.25
#: No model is owed, or owes, more than this: a long burst in the past must not stop a model for long.
_MAX_DEBT_S = 1.0


class Turns:
    """Owner of the account of each model with work."""

    def __init__(self) -> None:
        self._owed_s: dict[str, float] = {}  # positive: the model has had less than its part
        self._num_foreign: dict[str, int] = {}  # steps of others since its own last one

    def order(self, names: Iterable[str]) -> list[str]:
        """The models with work, in the order in which they may plan the next step. Accounts of others are closed."""
        active = list(names)
        for name in self._owed_s.keys() - set(active):
            del self._owed_s[name], self._num_foreign[name]
        if len(self._owed_s) == 1:  # a model that was alone neither owes nor is owed
            self._owed_s = dict.fromkeys(self._owed_s, 0.0)
        welcome = _WELCOME_S if self._owed_s else 0.0
        for name in active:
            self._owed_s.setdefault(name, welcome)
            self._num_foreign.setdefault(name, 0)
        most = max(MAX_FOREIGN_STEPS, len(active) - 1)
        return sorted(active, key=lambda name: self._rank(name, most))

    def _rank(self, name: str, most: int) -> tuple[bool, float, int]:
        """Models that have waited for the bound go first, then those that are owed most."""
        num_foreign = self._num_foreign[name]
        is_due = num_foreign >= most
        return not is_due, -num_foreign if is_due else -self._owed_s[name], -num_foreign

    def note_step(self, name: str) -> None:
        """This model has launched a step."""
        for other in self._num_foreign:
            self._num_foreign[other] += 1
        self._num_foreign[name] = 0

    def charge(self, name: str, seconds: float) -> None:
        """A step of this model has taken so long. Without other models with work nothing is owed."""
        if len(self._owed_s) < 2 or name not in self._owed_s:
            return
        part = seconds / len(self._owed_s)
        for other in self._owed_s:
            owed = self._owed_s[other] + part - (seconds if other == name else 0.0)
            self._owed_s[other] = min(_MAX_DEBT_S, max(-_MAX_DEBT_S, owed))
