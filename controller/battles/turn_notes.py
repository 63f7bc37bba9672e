"""What one running turn tells about itself: steps of the battle's trail, and lines of the log."""

import logging
import time
from typing import Any

from controller.battles.battle_store import BegunTurn
from controller.battles.side_answer import SideAnswer
from controller.battles.trails import Trails
from service_kit.logs import log_event, short
from wire.battles import Side
from wire.trails import Step

_logger = logging.getLogger(__name__)


class TurnNotes:
    """Owner of when the turn began."""

    def __init__(self, trails: Trails, begun: BegunTurn) -> None:
        self._trails = trails
        self._begun = begun
        self._started = time.monotonic() - begun.age_s

    def elapsed_ms(self) -> float:
        """Since the turn began, at whichever controller."""
        return (time.monotonic() - self._started) * 1000

    def side(self, step: Step, side: Side, answer: SideAnswer, **fields: Any) -> None:
        """A step of one side."""
        worker = None if answer.lane is None else answer.lane.worker.worker_id
        model, ms = answer.stored.model, round(self.elapsed_ms(), 1)
        self._note(step, **{"side": side, "model": model, "worker": worker, "ms": ms, **fields})

    def redrawn(self, side: Side, answer: SideAnswer) -> None:
        """The side has got another model."""
        self.side("redrawn", side, answer)
        log_event(_logger, "side_redrawn", battle=short(self._begun.battle_id))

    def lost(self, error: Exception) -> None:
        """The turn has another owner, or the store is away."""
        battle = short(self._begun.battle_id)
        log_event(_logger, "turn_lost", logging.WARNING, battle=battle, error=type(error).__name__)

    def ended(self, result: str) -> None:
        """The turn is over for this controller."""
        ms = round(self.elapsed_ms())
        self._note("ended", reason=result, ms=ms)
        battle = short(self._begun.battle_id)
        log_event(_logger, "turn_ended", battle=battle, turn=self._begun.turn, result=result, ms=ms)

    def _note(self, step: Step, **fields: Any) -> None:
        self._trails.note(self._begun.battle_id, step, turn=self._begun.turn, **fields)
