"""The routing table: this process's copy of the worker registry, read again every quarter of a second.

The load on Redis therefore grows with the number of workers and controllers, not with requests. While Redis is away the
last copy stays in use for STALE_S, with the registrations and counts of leases that it held.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from controller.store.keys import Keys
from controller.store.store import Store
from wire.errors import ApiError, ErrorCode
from wire.ids import WorkerId
from wire.workers import Capacity, Load, ModelCard, WorkerState

STALE_S = 60.0  #: a table older than this routes nothing


@dataclass(frozen=True)
class Worker:
    """A registered worker, one model of one process, at the last refresh."""

    worker_id: WorkerId
    epoch: int
    boot_id: str
    url: str
    state: WorkerState
    card: ModelCard
    capacity: Capacity
    load: Load
    num_leases: int  #: capacity leases that all controllers held at it
    beat_ms: int  #: its last heartbeat, by the store's clock

    @property
    def takes_requests(self) -> bool:
        """Whether it may be sent requests: at once, or to wake it."""
        return self.state in ("ready", "asleep") and not self.load.is_closed

    @property
    def limit(self) -> int:
        """Requests that it takes at once, running and queued."""
        return self.capacity.max_running + self.capacity.max_queued


@dataclass(frozen=True)
class Snapshot:
    """The registry at one moment."""

    workers: Mapping[str, Worker]  #: by worker id
    models: Mapping[str, ModelCard]  #: every model that was ever registered, by name
    now_ms: int  #: Unix time of the store
    taken_at: float  #: time.monotonic() of this process


class Controls(Protocol):
    """What an administrator has taken out of service."""

    def is_off(self, model: str) -> bool:
        """Whether the model takes nothing new."""
        ...

    def is_drained(self, worker_id: str) -> bool:
        """Whether the worker gets no new work."""
        ...


class NoControls:
    """Everything is in service."""

    def is_off(self, model: str) -> bool:
        """Never."""
        return False

    def is_drained(self, worker_id: str) -> bool:
        """Never."""
        return False


class RoutingTable:
    """Owns the snapshot. `refresh_round` is background work. Runs on the event loop."""

    def __init__(self, store: Store, keys: Keys, controls: Controls | None = None) -> None:
        self._store = store
        self._keys = keys
        self._controls = controls or NoControls()
        self._snapshot = Snapshot({}, {}, 0, float("-inf"))
        self._callbacks: list[Callable[[], None]] = []

    def on_refresh(self, callback: Callable[[], None]) -> None:
        """Call `callback` after every refresh that succeeded."""
        self._callbacks.append(callback)

    @property
    def snapshot(self) -> Snapshot:
        """The last snapshot, however old; empty before the first refresh."""
        return self._snapshot

    @property
    def age_s(self) -> float:
        """Seconds since the last refresh; infinite before the first."""
        return time.monotonic() - self._snapshot.taken_at

    def store_time(self) -> float:
        """The store's Unix time in seconds, from the last refresh and this process's clock since then."""
        return self._snapshot.now_ms / 1000 + self.age_s if self._snapshot.now_ms else time.time()

    def live(self) -> Iterable[Worker]:
        """All registered workers in any state, drained ones as draining; none when the table is older than STALE_S."""
        if self.age_s >= STALE_S:
            return ()
        return [
            replace(worker, state="draining") if self._controls.is_drained(worker.worker_id) else worker
            for worker in self._snapshot.workers.values()
        ]

    def ready(self, model: str) -> list[Worker]:
        """Workers of `model` that take requests, the full ones and those that a request wakes included."""
        return [worker for worker in self.live() if worker.card.name == model and worker.takes_requests]

    def ready_models(self) -> dict[str, ModelCard]:
        """Models that are on and have a worker that takes requests, by name."""
        return {
            worker.card.name: worker.card
            for worker in self.live()
            if worker.takes_requests and not self._controls.is_off(worker.card.name)
        }

    def chat_card(self, model: str, param: str) -> ModelCard | None:
        """The card of a model for a conversation; None: it is none of `ready_models`. Raises ApiError NOT_A_CHAT_MODEL
        for a base model, which could answer no message."""
        ready = self.ready_models().get(model)
        card = ready or self._snapshot.models.get(model)
        if card is not None and not card.can_chat:
            message = f"{model} is a base model without a chat template; it completes text, it does not chat."
            raise ApiError(ErrorCode.NOT_A_CHAT_MODEL, message, param=param)
        return ready

    def is_off(self, model: str) -> bool:
        """Whether an administrator has switched the model off."""
        return self._controls.is_off(model)

    def knows(self, model: str) -> bool:
        """Whether a worker of `model` has ever registered."""
        return model in self._snapshot.models

    def is_registered(self, worker: Worker) -> bool:
        """Whether this start of the worker was registered at the last refresh, under any epoch."""
        found = self._snapshot.workers.get(worker.worker_id)
        return found is not None and found.boot_id == worker.boot_id

    async def refresh(self) -> None:
        """Read the registry now. Raises ApiError STORE_UNAVAILABLE and keeps the old snapshot then."""
        now_ms, models, rows = await self._store.run(
            "routing_table",
            [self._keys.workers, self._keys.models],
            self._keys.worker_prefix,
            self._keys.leases_prefix,
        )
        workers = {row[0]: _worker(WorkerId(row[0]), int(row[1]), int(row[2]), _pairs(row[3])) for row in rows}
        cards = {name: ModelCard.model_validate_json(card) for name, card in _pairs(models).items()}
        self._snapshot = Snapshot(workers, cards, int(now_ms), time.monotonic())
        for callback in self._callbacks:
            callback()

    async def refresh_round(self) -> None:
        """`refresh`, as background work: a store that is away is no error."""
        with contextlib.suppress(ApiError):
            await self.refresh()


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _worker(worker_id: WorkerId, end_ms: int, num_leases: int, fields: dict[str, str]) -> Worker:
    return Worker(
        worker_id=worker_id,
        epoch=int(fields["epoch"]),
        boot_id=fields["boot_id"],
        url=fields["url"],
        state=fields["state"],  # type: ignore[arg-type]  # validated when it was written
        card=ModelCard.model_validate_json(fields["card"]),
        capacity=Capacity.model_validate_json(fields["capacity"]),
        load=Load.model_validate_json(fields["load"]),
        num_leases=num_leases,
        beat_ms=end_ms - int(fields.get("lifetime", 0)),  # each heartbeat renews the registration for its lifetime
    )
