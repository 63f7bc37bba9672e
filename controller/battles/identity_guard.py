"""Whether an answer reveals its model: text that claims a name as the speaker's own, in any of some thirty languages.

A name alone reveals nothing ("Excel was developed by Microsoft"); it counts where the speaker claims it, also if the
visitor's prompt has it. A denial ("I am not NAME") counts as no claim. Measured on the texts of
tests/controller/battles/identity_texts. Knows no battle.
"""

from collections.abc import Callable, Iterable

from controller.battles.revealing.claims import Claims
from controller.battles.revealing.names import Names
from controller.battles.revealing.phrases import phrases


class IdentityGuard:
    """Gives the rules for well-known names and those of `models`, the models registered in this arena."""

    def __init__(self, models: Callable[[], Iterable[str]]) -> None:
        self._models = models
        self._claims: tuple[frozenset[str], Claims] | None = None
        phrases()  # compiled now, and not while answers stream

    def claims(self) -> Claims:
        """The rules for the models that are registered now."""
        models = frozenset(self._models())
        if self._claims is None or self._claims[0] != models:
            self._claims = models, Claims(Names(models))
        return self._claims[1]
