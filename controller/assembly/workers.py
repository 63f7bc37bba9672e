"""Parts that route a request to a worker of its model and relay the answer."""

from dataclasses import dataclass

from controller.assembly.base import Base
from controller.config import Settings
from controller.workers.breaker import CircuitBreaker
from controller.workers.dispatch import Dispatcher
from controller.workers.joining import Joining
from controller.workers.registry import WorkerRegistry
from controller.workers.relay import Relay
from controller.workers.routing_table import RoutingTable
from controller.workers.served_models import ServedModelsOfWorkers
from controller.workers.upstream import Upstream
from controller.workers.waking import Waking
from controller.workers.worker_hosts import WorkerHosts
from controller.workers.worker_http import WorkerHttp


@dataclass(frozen=True)
class WorkerParts:
    """Parts that route a request to a worker of its model and relay the answer."""

    http: WorkerHttp
    table: RoutingTable
    registry: WorkerRegistry
    joining: Joining
    dispatcher: Dispatcher
    relay: Relay
    waking: Waking
    served: ServedModelsOfWorkers


def build_worker_parts(settings: Settings, base: Base) -> WorkerParts:
    """Build routing table, registry and relay."""
    table = RoutingTable(base.store, base.keys, base.state)
    breaker = CircuitBreaker()
    http = WorkerHttp(settings.worker_token.get_secret_value(), settings.connect_timeout_s, settings.ca_file)
    upstream = Upstream(
        http,
        table,
        first_token_timeout_s=settings.first_token_timeout_s,
        token_timeout_s=settings.token_timeout_s,
    )
    hosts = WorkerHosts(settings.worker_hosts)
    return WorkerParts(
        http=http,
        table=table,
        registry=WorkerRegistry(
            base.store,
            base.keys,
            table,
            hosts,
            heartbeat_s=settings.heartbeat_s,
            lease_s=settings.worker_lease_s,
        ),
        joining=Joining(hosts, settings.worker_token.get_secret_value(), settings.ca_file),
        dispatcher=Dispatcher(base.store, base.keys, table, breaker, lease_s=settings.slot_lease_s),
        waking=Waking(http, table, timeout_s=settings.first_token_timeout_s),
        served=ServedModelsOfWorkers(http, table),
        relay=Relay(
            upstream,
            table,
            breaker,
            base.metrics,
            base.failures.note,
            max_attempts=settings.max_attempts,
            replay_wait_s=settings.replay_wait_s,
        ),
    )
