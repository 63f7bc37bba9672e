"""Whether an answer reveals its model: text that claims a name as the speaker's own, in any of some thirty languages.

A name alone reveals nothing ("Excel was developed by Microsoft"); it counts where the speaker claims it, also if the
visitor's prompt has it. A denial ("I am not NAME") counts as no claim. Measured on the texts of
tests/controller/battles/identity_texts. Knows no battle.
"""

from collections.abc import Callable, Iterable, Sequence

from controller.battles.revealing.claims import Claims
from controller.battles.revealing.names import Names
from controller.battles.revealing.phrases import phrases


class IdentityGuard:
    """Checks answers against well-known names and those of `models`, the models registered in this arena. An answer of
    2,000 characters takes about 1 ms, one of 16,000 that is full of names 60 ms."""

    def __init__(self, models: Callable[[], Iterable[str]]) -> None:
        self._models = models
        self._claims: tuple[frozenset[str], Claims] | None = None
        phrases()  # compiled now, and not while answers stream

    def is_revealed(self, answers: Sequence[str], prompts: Sequence[str]) -> bool:
        """Whether any of `answers`, given to the last of `prompts`, claims a name."""
        claims = self._claims_now()
        return any(claims.in_answer(answer, prompts) for answer in answers)

    def _claims_now(self) -> Claims:
        models = frozenset(self._models())
        if self._claims is None or self._claims[0] != models:
            self._claims = models, Claims(Names(models))
        return self._claims[1]
