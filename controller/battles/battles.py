"""What a visitor can do with a battle except voting: create it, take a turn, answer it again, stop it.

The pair is in Redis when the battle is created, the turn before its first event. The leases of both sides are reserved
together before a turn begins, so that a refusal changes nothing. Votes are in controller/votes.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace

from controller.access.identity import Visitor
from controller.battles.battle_record import Battle, StoredSide, StoredTurn, side_fields
from controller.battles.battle_store import BattleStore, stale
from controller.battles.matchmaking import Matchmaker
from controller.battles.neutral_errors import neutral
from controller.battles.trails import Trails
from controller.battles.turn_taking import TurnRequest, TurnTaking
from controller.battles.voters import Voters
from controller.metrics import Metrics
from controller.workers.dispatch import Dispatcher, Lane, Wish
from controller.workers.routing_table import RoutingTable
from service_kit.logs import log_event, short
from wire.battles import SIDES, BattleSampling, CreateBattle, Side
from wire.entry_ids import EntryId
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId

_logger = logging.getLogger(__name__)


class Battles:
    """The operations behind the battle routes. Every method raises ApiError, also STORE_UNAVAILABLE."""

    def __init__(
        self,
        store: BattleStore,
        table: RoutingTable,
        dispatcher: Dispatcher,
        matchmaker: Matchmaker,
        taking: TurnTaking,
        voters: Voters,
        metrics: Metrics,
        trails: Trails,
        *,
        is_withdrawn: Callable[[str], bool],
        max_turns: int,
        max_content_chars: int,
    ) -> None:
        self._is_withdrawn = is_withdrawn
        self._store = store
        self._table = table
        self._dispatcher = dispatcher
        self._matchmaker = matchmaker
        self._taking = taking
        self._voters = voters
        self._metrics = metrics
        self._trails = trails
        self._max_content_chars = max_content_chars
        self.max_turns = max_turns

    async def create(self, request: CreateBattle, visitor: Visitor) -> Battle:
        """Create a battle between drawn models, or between those that the request names. Only `visitor` may vote on
        it. Raises ApiError as Matchmaker.draw does, MODEL_NOT_FOUND, NOT_A_CHAT_MODEL or NO_WORKER."""
        probability: float | None = None
        if request.models is None:
            sides, probability = self._draw()
        else:
            sides = {side: self._named(model) for side, model in zip(SIDES, request.models, strict=True)}
        battle_id = BattleId(secrets.token_urlsafe(16))
        fields = {
            "mode": request.mode,
            "state": "open",
            **self._voters.owner(visitor).fields(),
            "probability": "" if probability is None else repr(probability),
            "sampling": (request.sampling or BattleSampling()).model_dump_json(),
            "turn": "0",
            "run": "0",
        }
        for side, stored in sides.items():
            fields.update(side_fields(side, stored))
        history_of = self._voters.history_of(visitor)
        await self._store.create(battle_id, fields, history_of, is_returning=visitor.kind != "address")
        self._metrics.battles.labels("created").inc()
        self._trails.note(battle_id, "created")
        log_event(_logger, "battle_created", battle=short(battle_id), mode=request.mode)
        return await self._store.read(battle_id)

    async def read(self, battle_id: BattleId) -> Battle:
        """The battle now. Raises ApiError BATTLE_NOT_FOUND."""
        return await self._store.read(battle_id)

    async def take_turn(
        self, battle_id: BattleId, content: str, request_key: str | None = None, *, number: int | None = None
    ) -> EntryId:
        """Begin the next turn. Returns, when its events may be read, the id of the last event before them. Raises
        ApiError when the turn was refused, STALE_TURN when its number is not `number`.

        A request that is sent again with the `request_key` of the last turn begins nothing and gets that turn.
        """
        if not content.strip():
            raise ApiError(ErrorCode.INVALID_REQUEST, "The message is empty.", param="content")
        if len(content) > self._max_content_chars:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"The message is longer than {self._max_content_chars} characters.",
                param="content",
            )

        async def begin(battle: Battle) -> EntryId:
            if len(battle.turns) >= self.max_turns:
                raise ApiError(ErrorCode.BATTLE_FULL, f"A conversation has at most {self.max_turns} turns.")
            if number not in (None, len(battle.turns) + 1):
                raise stale(battle)
            return await self._begin(battle, len(battle.turns) + 1, content, request_key)

        return await self._taking.once(lambda: self.read(battle_id), TurnRequest(request_key, content), begin)

    async def regenerate(
        self, battle_id: BattleId, request_key: str | None = None, *, number: int | None = None
    ) -> EntryId:
        """Answer the last turn again; the new answers replace the old ones. Otherwise like `take_turn`; `number` is
        that of the last turn."""

        async def begin(battle: Battle) -> EntryId:
            if not battle.turns:
                raise ApiError(ErrorCode.INVALID_REQUEST, "There is no turn to answer again.")
            if number not in (None, len(battle.turns)):
                raise stale(battle)
            return await self._begin(battle, len(battle.turns), battle.turns[-1].content, request_key)

        return await self._taking.once(lambda: self.read(battle_id), TurnRequest(request_key, None), begin)

    async def stop(self, battle_id: BattleId) -> Battle:
        """End the running turn, whichever controller runs it. Without a running turn it does nothing. Returns the
        battle when the turn has ended, or after three seconds at the latest."""
        return await self._taking.stop(battle_id)

    async def _begin(self, battle: Battle, turn: int, content: str, request_key: str | None) -> EntryId:
        changes: dict[str, str] = {}
        try:
            lanes = await self._reserve(battle)
        except ApiError as error:
            if error.code is not ErrorCode.NO_WORKER or not battle.may_redraw:
                self._trails.note(battle.battle_id, "refused", turn=turn, reason=error.code.value)
                raise
            battle, changes = self._redrawn(battle)
            for side, stored in battle.sides.items():
                self._trails.note(battle.battle_id, "redrawn", turn=turn, side=side, model=stored.model)
            lanes = await self._reserve(battle)
        return await self._taking.begin(
            battle, turn, StoredTurn(content=content), lanes, changes, request_key=request_key
        )

    async def _reserve(self, battle: Battle) -> dict[Side, Lane]:
        """Lanes of both sides, or an ApiError that names no model."""
        wishes = [Wish(battle.sides[side].model, battle.sides[side].worker_id) for side in SIDES]
        try:
            return dict(zip(SIDES, await self._dispatcher.reserve(wishes, "battle"), strict=True))
        except ApiError as error:
            raise neutral(error) from None

    def _draw(self) -> tuple[dict[Side, StoredSide], float]:
        a, b = self._matchmaker.draw()
        return {"a": StoredSide(a.model, a.revision, None), "b": StoredSide(b.model, b.revision, None)}, a.probability

    def _redrawn(self, battle: Battle) -> tuple[Battle, dict[str, str]]:
        """The battle with two new models, if the drawn ones have no worker any more; once, before the first turn."""
        sides, probability = self._draw()
        changes = {"redraws": "1", "probability": repr(probability)}
        for side, stored in sides.items():
            changes.update(side_fields(side, stored))
        return replace(battle, sides=sides, probability=probability, redraws=1), changes

    def _named(self, model: str) -> StoredSide:
        if self._is_withdrawn(model):
            raise ApiError(
                ErrorCode.MODEL_NOT_FOUND, f"The model {model!r} is retired or switched off.", param="models"
            )
        card = self._table.chat_card(model, "models")
        if card is not None:
            return StoredSide(model, card.revision, None)
        if self._table.knows(model):
            raise ApiError(
                ErrorCode.NO_WORKER,
                f"No worker of the model {model!r} can answer now.",
                param="models",
                retry_after_s=5,
            )
        raise ApiError(ErrorCode.MODEL_NOT_FOUND, f"The model {model!r} does not exist.", param="models")
