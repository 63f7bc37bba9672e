"""Takes over running turns whose controller has died or shut down: a round of the background work of every controller.

A turn is claimed in the store, where one controller gets it, its progress is read back from its events, and the rest
runs here. The former owner may be alive, for instance stopped for some seconds: it can write nothing after the claim.
"""

import logging
import math
import time

from controller.battles.battle_store import ClaimedTurn, TurnStore
from controller.battles.turn_progress import read_progress
from controller.battles.turn_runner import TurnRunner
from service_kit.logs import log_event, short
from wire.errors import ApiError

ROUND_S = 0.5
MAX_CLAIMS = 32  #: in one round; other controllers take the rest

_logger = logging.getLogger(__name__)


class TurnTakeover:
    """Owns the decision whether this controller claims turns now. `ownership_s` is that of the turns."""

    def __init__(self, store: TurnStore, runner: TurnRunner, *, ownership_s: float) -> None:
        self._store = store
        self._runner = runner
        self._ownership_s = ownership_s
        self._last_contact: float | None = None  #: time.monotonic() of the last round that the store answered
        self._num_calm = 0  #: rounds that the store must answer before turns are claimed
        self._has_claimed = True  #: since turns could last not be claimed
        self._is_closed = False

    def close(self) -> None:
        """Claim nothing from now on: this controller shuts down."""
        self._is_closed = True

    async def claim_round(self) -> None:
        """Take over turns without an owner.

        After a pause without the store, none of the owners could renew; so they get as many rounds for it as fit into
        one ownership, before their turns are claimed. Only rounds that the store answers count, and another pause does
        not begin them anew: under a store that dies every second, turns would be left without an owner. A claim too
        many would cost computing time, but no text.
        """
        if self._is_closed:
            return
        if self._last_contact is not None and time.monotonic() - self._last_contact > self._ownership_s / 2:
            self._calm_down()
        is_calm = self._num_calm == 0
        try:
            claims = await self._store.claim_turns(MAX_CLAIMS if is_calm else 0)
            self._last_contact = time.monotonic()
            self._num_calm = max(0, self._num_calm - 1)
            self._has_claimed |= is_calm
            for claim in claims:
                await self._take_over(claim)
        except ApiError:  # turns that were claimed just now lose their owner again, and are claimed later
            self._calm_down()

    def _calm_down(self) -> None:
        if self._has_claimed:
            self._num_calm = math.ceil(self._ownership_s / ROUND_S)
            self._has_claimed = False

    async def _take_over(self, claim: ClaimedTurn) -> None:
        try:
            begun, battle, asked = claim.turn()
            progress = read_progress(await self._store.read_turn_events(begun))
        except (KeyError, ValueError) as error:  # not written by this release; the other turns must go on
            log_event(_logger, "turn_unreadable", logging.ERROR, exc_info=error, battle=short(claim.battle_id))
            return
        self._runner.take_over(begun, battle, asked, progress, is_given_up=claim.is_given_up)
