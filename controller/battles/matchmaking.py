"""Chooses the models of a battle: draws a pair that can answer now and its probability, and assigns sides at random.

Knows no Redis and no worker; `has_room` and the counts are handed in.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ratings.outcomes import PairCounts
from ratings.pairing import draw_pair, pair_probabilities
from wire.errors import ApiError, ErrorCode
from wire.workers import ModelCard


@dataclass(frozen=True)
class Drawn:
    """A model for one side. `probability` is that of the unordered pair, which the vote record stores."""

    model: str
    revision: str
    probability: float


class Matchmaker:
    """Draws among models that have a ready worker with room. `counts` are those of the overall board; `refused` is
    told the models of which too few have room, and returns after how many seconds to ask again."""

    def __init__(
        self,
        ready_models: Callable[[], Mapping[str, ModelCard]],
        has_room: Callable[[str], bool],
        counts: Callable[[], PairCounts],
        refused: Callable[[Iterable[str]], float],
        *,
        mode: Literal["uniform", "active"],
        rng: random.Random | None = None,
    ) -> None:
        self._ready_models = ready_models
        self._has_room = has_room
        self._counts = counts
        self._refused = refused
        self._mode: Literal["uniform", "active"] = mode
        self._rng = rng or random.SystemRandom()  # pairs must not be predictable

    def draw(self) -> tuple[Drawn, Drawn]:
        """Sides a and b. Raises ApiError NOT_ENOUGH_MODELS, or QUEUE_FULL when too few ready models have room."""
        ready = self._ready_models()
        open_models = sorted(model for model in ready if self._has_room(model))
        if len(open_models) < 2:
            if len(ready) >= 2:
                wait_s = self._refused(ready)
                raise ApiError(
                    ErrorCode.QUEUE_FULL, "The models are busy. Try again in a moment.", retry_after_s=wait_s
                )
            raise ApiError(
                ErrorCode.NOT_ENOUGH_MODELS, "A battle needs two models; fewer are running now.", retry_after_s=5
            )
        pair = draw_pair(self._probabilities(open_models), self._rng)
        a, b = (Drawn(model, ready[model].revision, pair.probability) for model in (pair.model_a, pair.model_b))
        return a, b

    def redraw(self, opponent: str, *, excluded: str) -> Drawn | None:
        """Another model than `excluded` against `opponent`, drawn by the probabilities of the remaining pairs. None
        when no third model has room."""
        ready = self._ready_models()
        models = sorted({model for model in ready if self._has_room(model)} - {excluded} | {opponent})
        left = {pair: share for pair, share in self._probabilities(models).items() if opponent in pair}
        total = sum(left.values())
        if total <= 0:
            return None
        drawn = draw_pair({pair: share / total for pair, share in left.items()}, self._rng)
        model = drawn.model_b if drawn.model_a == opponent else drawn.model_a
        return Drawn(model, ready[model].revision, drawn.probability)

    def _probabilities(self, models: list[str]) -> dict[tuple[str, str], float]:
        return pair_probabilities(models, self._counts(), mode=self._mode)
