"""Whose turn it is: a deficit round robin over what steps cost, in seconds.

Every model with work is owed a part of the time. What a step of one model has taken is credited to the others; the
model that is owed most goes next. A token is no fair measure: one that is decoded costs as much as dozens of a prompt,
because a step reads all weights. Where all tokens cost the same, this is a deficit round robin over tokens.

Parts are equal, except that a rested model, one that has lately used less than others because it had no work, gets more
than half of the time until it has caught up: its requests take less than twice their time alone however many models
are busy. Over a long time parts are equal. Knows no models but their names, and no clock.
"""

from collections.abc import Iterable

#: Most steps of other models between two steps of a model with work, where these are no more than so many.
MAX_FOREIGN_STEPS = 8
#: With more other models, so many steps for each of them; more while one is rested, whose steps come between theirs.
_STEPS_OF_EACH, _STEPS_OF_EACH_BESIDE_RESTED = 1, 4
#: What a model is owed when it gets work while others have some: it goes first, so that the wait for a step that has
#: begun is made up for.
_WELCOME_S = 0.25
#: No model is owed, or owes, more than this: a long burst in the past must not stop a model for long.
_MAX_DEBT_S = 1.0
#: Part of the time of a rested model beside busy ones: more than half, for the same reason. Not much more: steps of a
#: few rows give fewer tokens in the time.
_RESTED_PART = 0.55
#: Most that several rested models get together: answers of busy ones go on.
_RESTED_PARTS = 0.8
#: A model is rested if it has used so much less than the busiest one with work.
_LEAST_REST_S = 0.5
#: Use is forgotten so fast that a model that always has work comes to so much, alone or beside others.
_MOST_USE_S = 10.0
_FORGOTTEN_S = 1e-6


class Turns:
    """Owner of the account of each model with work, and of what each model has used lately."""

    def __init__(self) -> None:
        self._owed_s: dict[str, float] = {}  # positive: the model has had less than its part
        self._num_foreign: dict[str, int] = {}  # steps of others since its own last one
        self._used_s: dict[str, float] = {}  # lately; models without work included; no entry: none

    def order(self, names: Iterable[str]) -> list[str]:
        """The models with work, in the order in which they may plan the next step. Accounts of others are closed."""
        active = list(names)
        for name in self._owed_s.keys() - set(active):
            del self._owed_s[name], self._num_foreign[name]
        if len(self._owed_s) == 1:  # a model that was alone neither owes nor is owed
            self._owed_s = dict.fromkeys(self._owed_s, 0.0)
        for name, is_welcome in [(name, self._is_welcome(name)) for name in active if name not in self._owed_s]:
            self._owed_s[name] = _WELCOME_S if is_welcome else 0.0
            self._num_foreign[name] = 0
        steps_of_each = _STEPS_OF_EACH_BESIDE_RESTED if self._rested() else _STEPS_OF_EACH
        most = max(MAX_FOREIGN_STEPS, steps_of_each * (len(active) - 1))
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
        if len(self._owed_s) > 1 and name in self._owed_s:
            for other, part in self._parts().items():
                owed = self._owed_s[other] + part * seconds - (seconds if other == name else 0.0)
                self._owed_s[other] = min(_MAX_DEBT_S, max(-_MAX_DEBT_S, owed))
        self._note_use(name, seconds)

    def _parts(self) -> dict[str, float]:
        """The part of the time of each model with work; together 1."""
        num_models, rested = len(self._owed_s), self._rested()
        num_rested = len(rested)
        if not rested:
            return dict.fromkeys(self._owed_s, 1.0 / num_models)
        of_rested = max(num_rested / num_models, min(_RESTED_PARTS, num_rested * _RESTED_PART))
        part, other_part = of_rested / num_rested, (1.0 - of_rested) / (num_models - num_rested)
        return {name: part if name in rested else other_part for name in self._owed_s}

    # Use over a longer time

    def _note_use(self, name: str, seconds: float) -> None:
        kept = max(0.0, 1.0 - seconds / (_MOST_USE_S * max(1, len(self._owed_s))))
        self._used_s[name] = self._use_of(name) + seconds
        self._used_s = {other: used * kept for other, used in self._used_s.items() if used > _FORGOTTEN_S}

    def _use_of(self, name: str) -> float:
        return self._used_s.get(name, 0.0)

    def _rested(self) -> set[str]:
        """Models with work that have used less than the busiest of them."""
        most = max(map(self._use_of, self._owed_s), default=0.0)
        return {name for name in self._owed_s if self._use_of(name) + _LEAST_REST_S <= most}

    def _is_welcome(self, name: str) -> bool:
        """Whether others have work, and this model has not used more than all of them: one whose requests come one by
        one would otherwise be welcomed for each."""
        return bool(self._owed_s) and self._use_of(name) <= max(map(self._use_of, self._owed_s))
