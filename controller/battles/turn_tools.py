"""Collaborators and limits that all turns of a controller have in common."""

from collections.abc import Callable
from dataclasses import dataclass

from controller.battles.battle_record import Battle
from controller.battles.identity_guard import IdentityGuard
from controller.battles.matchmaking import Matchmaker
from controller.battles.trails import Trails
from controller.metrics import Metrics
from controller.workers.congestion import Kind
from controller.workers.dispatch import Dispatcher
from controller.workers.relay import Relay
from controller.workers.waking import Waking


@dataclass(frozen=True)
class TurnTools:
    """Made once in the composition root."""

    relay: Relay
    dispatcher: Dispatcher
    matchmaker: Matchmaker
    waking: Waking
    identity: IdentityGuard
    metrics: Metrics
    prompt_key: Callable[[str], str]
    cache_salt: Callable[[str, str], str]  #: of a battle id and its voter
    trails: Trails
    max_tokens: int  #: longest answer
    thinking_budget: int | None  #: most tokens of thoughts in it, the same for both sides; None: no such limit
    admission_wait_s: float  #: after this time events are sent even if a worker has not accepted yet
    replay_wait_s: float  #: longest wait for a place at a worker after a take-over
    kind: Kind = "battle"  #: of work at the workers
    paced: float = 0.0  #: characters a second at which both answers of an anonymous battle are shown; 0: as they come

    def pace_of(self, battle: Battle) -> float:
        """The speed of both answers of `battle`, 0: as they come."""
        return 0.0 if battle.names_are_known else self.paced
