"""What labs say of their models (wire/model_cards.py), in the store, and which models are retired.

Runs on the event loop. Every controller reads the cards every two seconds, the one that changes a card at once.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, cast

from pydantic import ValidationError

from controller.store.keys import Keys
from controller.store.store import Store
from service_kit.logs import log_event
from wire.errors import ApiError
from wire.model_cards import BoardCard, BoardCards, CardState
from wire.workers import ModelCard

REFRESH_S: Final = 2.0

_logger = logging.getLogger(__name__)


class ModelCards:
    """Owns the copy of the cards. `clock` gives the store's Unix time."""

    def __init__(self, store: Store, keys: Keys, clock: Callable[[], float]) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        self._stored: dict[str, str] = {}
        self._cards: dict[str, BoardCard] = {}
        self.version = 0  #: grows when a card has changed

    @property
    def cards(self) -> Mapping[str, BoardCard]:
        """By model, as of the last refresh."""
        return self._cards

    def view(self) -> BoardCards:
        """All cards, by name."""
        return BoardCards(models=tuple(self._cards[model] for model in sorted(self._cards)))

    def is_retired(self, model: str) -> bool:
        """Whether its day of retirement (UTC) has come."""
        card = self._cards.get(model)
        if card is None or card.retired is None:
            return False
        return card.retired <= datetime.fromtimestamp(self._clock(), UTC).date().isoformat()

    def in_service(self, models: Mapping[str, ModelCard]) -> dict[str, ModelCard]:
        """`models` without the retired ones."""
        return {name: card for name, card in models.items() if not self.is_retired(name)}

    def states(self, known: Iterable[str]) -> dict[str, CardState]:
        """The state of each model with a card, and of each of `known`, which have votes or had a worker."""
        active = set(known)
        states: dict[str, CardState] = {}
        for model in sorted(active | set(self._cards)):
            states[model] = "active" if model in active else "submitted"
            if self.is_retired(model):
                states[model] = "retired"
        return states

    async def put(self, card: BoardCard) -> BoardCard:
        """Store a card in place of the model's last one; the time of the first one stays. Raises ApiError
        STORE_UNAVAILABLE."""
        await self.refresh()
        before = self._cards.get(card.model)
        submitted = before.submitted if before is not None else self._clock()
        card = card.model_copy(update={"submitted": submitted})
        with self._store.guard("put_card"):
            await self._store.redis.hset(self._keys.board_cards, card.model, card.model_dump_json(exclude_none=True))
        await self.refresh()
        return card

    async def refresh(self) -> None:
        """Read the cards. Raises ApiError STORE_UNAVAILABLE, and keeps the old ones then."""
        with self._store.guard("read_cards"):
            stored = cast(dict[str, str], await self._store.redis.hgetall(self._keys.board_cards))
        if stored == self._stored:
            return
        self._stored, self._cards = stored, {}
        for model, text in stored.items():
            try:
                self._cards[model] = BoardCard.model_validate_json(text)
            except ValidationError:
                log_event(_logger, "card_damaged", logging.ERROR, model=model)
        self.version += 1

    async def refresh_round(self) -> None:
        """`refresh` as background work: a store that is away is no error."""
        with contextlib.suppress(ApiError):
            await self.refresh()
