"""Whose turn it is: a deficit round robin over what steps cost, in seconds.

Every model with work is owed a part of the time. What a step of one model has taken is credited to the others; the
model that is owed most goes next. A token is no fair measure: one that is decoded costs as much as dozens of a prompt,
because a step reads all weights. Where all tokens cost the same, this is a deficit round robin over tokens.

Parts are equal, except that a light model gets 3/4 of the time: one that has had less than the busiest one since it got
work, and has lately had no more than its equal part. However many models are busy, its requests take 4/3 of their time
alone, and what steps that have begun and caches that others have filled add to it (figures: docs/memory.md); they cost
the busy ones no more than they would later. Several light models get 9/10 together, in equal parts: two that
begin at once beside a busy one take 2.2 times their time alone, where 2 would stop the busy one.
What a light model gets beyond an equal part is counted and bounded, and a model without work gains an equal part back:
over a long time no model with work gets less than an equal part. Knows no models but their names, and no clock.
"""

from collections.abc import Iterable

#: A model with work goes next after so many steps of others, if they have also taken so long: once for each other.
MAX_FOREIGN_STEPS, MAX_FOREIGN_S = 8, 0.08
_STEPS_OF_EACH = 4
#: What a light model is owed when it gets work while others have some: it goes first, so that the wait for a step that
#: has begun is made up for.
_WELCOME_S = 0.25
#: The model that had the last step goes on until another one is owed so much more: the caches of a processor have to be
#: filled anew for each other model (20 % of the time of steps of a millisecond).
_QUANTUM_S = 0.01
#: No model is owed, or owes, more than this: a long burst in the past must not stop a model for long.
_MAX_DEBT_S = 1.0
#: Part of the time of a light model, and of several together: answers of busy ones go on.
_LIGHT_PART, _LIGHT_PARTS = 0.75, 0.9
#: A light model has had so much less than the busiest one, since each of them got work.
_LEAST_DIFFERENCE_S = 0.5
#: Most that a model gets beyond its equal part, times the part of the others: a request of so many seconds takes at
#: most twice as long.
_MAX_AHEAD_S = 6.0


class Turns:
    """Owner of the account of each model with work, and of what each model has lately had beyond its equal part."""

    def __init__(self) -> None:
        self._owed_s: dict[str, float] = {}  # positive: the model has had less than its part
        self._had_s: dict[str, float] = {}  # since it got work
        self._foreign: dict[str, tuple[int, float]] = {}  # steps of others since its own last one, and their seconds
        self._ahead_s: dict[str, float] = {}  # models without work included; no entry: nothing
        self._last = ""  # the model of the last step

    def order(self, names: Iterable[str]) -> list[str]:
        """The models with work, in the order in which they may plan the next step. Accounts of others are closed."""
        active = list(names)
        gone, new = self._owed_s.keys() - set(active), [name for name in active if name not in self._owed_s]
        for name in gone:
            del self._owed_s[name], self._had_s[name], self._foreign[name]
        if self._owed_s and (gone or new):
            self._open_beside_others(new)
        else:
            self._open(new, dict.fromkeys(new, 0.0))
        return sorted(active, key=self._rank)

    def _open_beside_others(self, names: list[str]) -> None:
        """Open accounts of models that get work while others have some, whose accounts come to 0 together."""
        mean = sum(self._owed_s.values()) / len(self._owed_s)
        self._owed_s = {name: owed - mean for name, owed in self._owed_s.items()}
        light = self._light()
        most = max((owed for name, owed in self._owed_s.items() if name not in light), default=0.0)
        most_of_light = max((self._owed_s[name] for name in light), default=-_MAX_DEBT_S)
        rooms = {name: min(_WELCOME_S, self._room_s(name)) for name in names}
        self._open(names, {name: max(most + room, most_of_light) if room else 0.0 for name, room in rooms.items()})

    def _open(self, names: list[str], owed_s: dict[str, float]) -> None:
        self._owed_s |= owed_s
        self._had_s |= dict.fromkeys(names, 0.0)
        self._foreign |= dict.fromkeys(names, (0, 0.0))

    def _rank(self, name: str) -> tuple[bool, float, int]:
        """Models that have waited for the bound go first, then those that are owed most."""
        num_steps, seconds = self._foreign[name]
        num_others = len(self._owed_s) - 1
        is_due = num_steps >= max(MAX_FOREIGN_STEPS, _STEPS_OF_EACH * num_others)
        is_due = is_due and seconds >= MAX_FOREIGN_S * num_others
        owed_s = self._owed_s[name] + (_QUANTUM_S if name == self._last else 0.0)
        return not is_due, -seconds if is_due else -owed_s, -num_steps

    def note_step(self, name: str) -> None:
        """This model has launched a step."""
        self._foreign = {other: (number + 1, seconds) for other, (number, seconds) in self._foreign.items()}
        self._foreign[name] = 0, 0.0
        self._last = name

    def charge(self, name: str, seconds: float) -> None:
        """This model has used the device, or the thread that serves all models, for so long. Without other models with
        work nothing is owed."""
        if name in self._owed_s:
            self._foreign = {
                other: (number, waited + (seconds if other != name else 0.0))
                for other, (number, waited) in self._foreign.items()
            }
            for other, part in self._parts().items():
                owed = self._owed_s[other] + part * seconds - (seconds if other == name else 0.0)
                self._owed_s[other] = min(_MAX_DEBT_S, max(-_MAX_DEBT_S, owed))
            self._had_s[name] += seconds
        self._note_ahead(name, seconds)

    def note_rest(self, seconds: float) -> None:
        """For so long no model had work."""
        self._ahead_s = {name: ahead - seconds for name, ahead in self._ahead_s.items() if ahead > seconds}

    def _note_ahead(self, name: str, seconds: float) -> None:
        num_active = len(self._owed_s)
        for other in {name, *self._ahead_s}:
            part = 1.0 / (num_active if other in self._owed_s else num_active + 1)
            ahead = self._ahead_s.get(other, 0.0) + (seconds if other == name else 0.0) - part * seconds
            if ahead > 0.0:
                self._ahead_s[other] = ahead
            else:
                self._ahead_s.pop(other, None)

    def _parts(self) -> dict[str, float]:
        """The part of the time of each model with work; together 1."""
        num_models, light = len(self._owed_s), self._light()
        num_light = len(light)
        if not light:
            return dict.fromkeys(self._owed_s, 1.0 / num_models)
        of_light = max(num_light / num_models, min(_LIGHT_PARTS, num_light * _LIGHT_PART))
        part, other_part = of_light / num_light, (1.0 - of_light) / (num_models - num_light)
        return {name: part if name in light else other_part for name in self._owed_s}

    def _light(self) -> set[str]:
        most = max(self._had_s.values(), default=0.0)
        return {
            name for name, had in self._had_s.items() if had + _LEAST_DIFFERENCE_S <= most and self._room_s(name) > 0.0
        }

    @property
    def _max_ahead_s(self) -> float:
        return _MAX_AHEAD_S * (1.0 - 1.0 / max(2, len(self._owed_s)))

    def _room_s(self, name: str) -> float:
        """What the model may get beyond its equal part."""
        return max(0.0, self._max_ahead_s - self._ahead_s.get(name, 0.0))
