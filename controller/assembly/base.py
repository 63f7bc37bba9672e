"""Collaborators that all other parts share."""

from dataclasses import dataclass

from controller.access.cache_salts import CacheSalts
from controller.admin.action_log import ActionLog
from controller.admin.arena_state import ArenaState
from controller.admin.failure_log import FailureLog
from controller.battles.trails import Trails
from controller.config import Settings
from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store
from service_kit.background import BackgroundTasks


@dataclass(frozen=True)
class Base:
    """Collaborators that all other parts share."""

    metrics: Metrics
    keys: Keys
    store: Store
    background: BackgroundTasks
    actions: ActionLog
    state: ArenaState
    failures: FailureLog
    trails: Trails
    salts: CacheSalts


def build_base(settings: Settings, metrics: Metrics, store: Store) -> Base:
    """Build what has no part of this application below it but the store."""
    keys = Keys(settings.key_prefix)
    actions = ActionLog(store, keys)
    state = ArenaState(store, keys, actions, file_terms=settings.terms())
    # A controller without a voter key takes the admin token: all controllers of the arena have it.
    salts = CacheSalts(settings.voter_key.get_secret_value() or settings.admin_token.get_secret_value())
    return Base(
        metrics=metrics,
        keys=keys,
        store=store,
        background=BackgroundTasks(),
        actions=actions,
        state=state,
        failures=FailureLog(store, keys),
        trails=Trails(store, keys),
        salts=salts,
    )
