"""Collaborators that all other parts share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.access.cache_salts import CacheSalts
from controller.admin.action_log import ActionLog
from controller.admin.arena_state import ArenaState
from controller.admin.failure_log import FailureLog
from controller.battles.trails import Trails
from controller.config import Settings
from controller.errors import ConfigurationError
from controller.metrics import Metrics
from controller.store.durability import ROUND_S as DURABILITY_S
from controller.store.durability import DurabilityWatch
from controller.store.keys import Keys
from controller.store.sentinel import LOOK_S
from controller.store.store import Store
from service_kit.background import BackgroundTasks

if TYPE_CHECKING:
    from controller.battles.traces import Traces


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
    traces: "Traces | None"
    salts: CacheSalts


def build_base(settings: Settings, metrics: Metrics, store: Store) -> Base:
    """Build what has no part of this application below it but the store."""
    keys = Keys(settings.key_prefix)
    actions = ActionLog(store, keys)
    state = ArenaState(store, keys, actions, file_terms=settings.terms(), undrawn=settings.undrawn_models)
    # A controller without a voter key takes the admin token: all controllers of the arena have it.
    salts = CacheSalts(settings.voter_key.get_secret_value() or settings.admin_token.get_secret_value())
    durability = DurabilityWatch(
        store, metrics, has_journal=settings.journal_dir is not None, num_replicas=settings.needed_replicas
    )
    background = BackgroundTasks()
    background.add("durability", durability.look_round, every_s=DURABILITY_S)
    if settings.store_address().service is not None:
        background.add("store_primary", store.follow_primary, every_s=LOOK_S)
    traces = _traces(settings)
    return Base(
        metrics=metrics,
        keys=keys,
        store=store,
        background=background,
        actions=actions,
        state=state,
        failures=FailureLog(store, keys),
        trails=Trails(store, keys, None if traces is None else traces.note),
        traces=traces,
        salts=salts,
    )


def _traces(settings: Settings) -> "Traces | None":
    """The export of traces, where it is asked for. Raises ConfigurationError without its packages."""
    if not settings.otlp_endpoint:
        return None
    try:
        from controller.battles.traces import Traces
    except ModuleNotFoundError:
        raise ConfigurationError("AGON_OTLP_ENDPOINT needs `pip install 'agon[traces]'`.") from None
    return Traces(settings.otlp_endpoint, settings.ca_file)
