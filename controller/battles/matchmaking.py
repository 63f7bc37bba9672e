"""Chooses the models of a battle: draws a pair that can answer now and its probability, and assigns sides at random.

Knows no Redis and no worker; `has_room` and the counts are handed in. Runs on the event loop; pairs are weighed by the
votes in a thread.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ratings.outcomes import PairCounts
from ratings.pairing import Misordering, PairingMode, PairTable, misordering
from wire.errors import ApiError, ErrorCode
from wire.workers import ModelCard

WEIGH_S = 5.0  #: seconds between two weighings of the pairs by the votes
MAX_TABLES = 64  #: sets of models with room whose tables are kept until the next weighing


@dataclass(frozen=True)
class Drawn:
    """A model for one side. `probability` is that of the unordered pair, which the vote record stores."""

    model: str
    revision: str
    probability: float


class Matchmaker:
    """Draws among models that can chat and have a ready worker with room. `counts` are those of the overall board,
    other objects after new votes; `refused` is told the models of which too few have room, and returns after how many
    seconds to ask again. `weight` is what the administrator gives a model; one of weight 0 is not drawn."""

    def __init__(
        self,
        ready_models: Callable[[], Mapping[str, ModelCard]],
        has_room: Callable[[str], bool],
        counts: Callable[[], PairCounts],
        refused: Callable[[Iterable[str]], float],
        *,
        mode: PairingMode,
        weight: Callable[[str], float] = lambda _: 1.0,
        rng: random.Random | None = None,
    ) -> None:
        self._ready_models = ready_models
        self._has_room = has_room
        self._counts = counts
        self._refused = refused
        self._mode = mode
        self._weight = weight
        self._rng = rng or random.SystemRandom()  # pairs must not be predictable
        self._misordering: Misordering | None = None  #: None: all pairs alike
        self._weighed: PairCounts | None = None  #: the counts at the last weighing
        #: By the models with room and their weights.
        self._tables: dict[tuple[tuple[str, float], ...], PairTable] = {}

    async def weigh_round(self) -> None:
        """Weigh the pairs by the votes counted so far, in a thread. Does nothing in uniform mode or without new
        votes."""
        counts = self._counts()
        if self._mode == "uniform" or counts is self._weighed:
            return
        self._misordering = await asyncio.to_thread(lambda: misordering(counts.tally()))
        self._weighed = counts
        self._tables.clear()

    def draw(self) -> tuple[Drawn, Drawn]:
        """Sides a and b. Raises ApiError NOT_ENOUGH_MODELS, or QUEUE_FULL when too few ready models have room."""
        ready = self._drawable()
        open_models = self._open(ready)
        if len(open_models) < 2:
            if len(ready) >= 2:
                wait_s = self._refused(ready)
                raise ApiError(
                    ErrorCode.QUEUE_FULL, "The models are busy. Try again in a moment.", retry_after_s=wait_s
                )
            message = "A battle needs two models that can chat; fewer are running now."
            if base := sorted(model for model, card in self._ready_models().items() if not card.can_chat):
                message += f" Base models without a chat template complete text only: {', '.join(base)}."
            raise ApiError(ErrorCode.NOT_ENOUGH_MODELS, message, retry_after_s=5)
        pair = self._table(open_models).draw(self._rng)
        a, b = (Drawn(model, ready[model].revision, pair.probability) for model in (pair.model_a, pair.model_b))
        return a, b

    def redraw(self, opponent: str, *, excluded: str) -> Drawn | None:
        """Another model than `excluded` against `opponent`, in proportion to the probabilities of their pairs. None
        when no third model has room.

        The probability is the one that a draw among all these models, `excluded` too, gives to the pair: not the
        greater one that it has now that the opponent is known, by which votes would count too little.
        """
        ready = self._drawable()
        open_models = self._open(ready)
        table = self._table(sorted({*open_models, opponent, excluded}))
        model = table.draw_opponent(opponent, [model for model in open_models if model != excluded], self._rng)
        if model is None:
            return None
        return Drawn(model, ready[model].revision, table.probability(opponent, model))

    def _drawable(self) -> dict[str, ModelCard]:
        ready = self._ready_models()
        return {model: card for model, card in ready.items() if card.can_chat and self._weight(model) > 0}

    def _open(self, ready: Mapping[str, ModelCard]) -> list[str]:
        return sorted(model for model in ready if self._has_room(model))

    def _table(self, models: list[str]) -> PairTable:
        # A model that was drawn before its weight became 0 keeps its battle, and is weighed as any other one.
        key = tuple((model, self._weight(model) or 1.0) for model in models)
        table = self._tables.get(key)
        if table is None:
            if len(self._tables) >= MAX_TABLES:
                self._tables.clear()
            table = self._tables[key] = PairTable(models, self._misordering, weights=dict(key))
        return table
