"""Which workers are there now: a copy of the registry in this process, read again every quarter of a second.

So the load on Redis grows with the number of workers and controllers, not with requests. When Redis is away the last
copy stays in use for STALE_S; leases are then taken as they were when it was last seen.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from controller.store.keys import Keys
from controller.store.store import Store
from service_kit.cancellation import cancel
from service_kit.logs import log_event
from wire.errors import ApiError
from wire.workers import Capacity, Load, ModelCard, WorkerState

STALE_S = 60.0  #: a table older than this routes nothing

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """A worker as the registry knew it at the last look. `slots` are the leases all controllers hold at it."""

    worker_id: str
    epoch: int
    boot_id: str
    url: str
    state: WorkerState
    card: ModelCard
    capacity: Capacity
    load: Load
    slots: int
    beat_ms: int

    @property
    def limit(self) -> int:
        """Requests it may hold at once, running and queued."""
        return self.capacity.max_running + self.capacity.max_queued


@dataclass(frozen=True)
class Snapshot:
    """One look at the registry; `taken_at` is monotonic, `now_ms` is the store's clock."""

    workers: Mapping[str, Worker]
    models: Mapping[str, ModelCard]  #: every model that was ever registered
    now_ms: int
    taken_at: float


class RoutingTable:
    """Owns the snapshot and the task that renews it. `on_refresh` callbacks run after every look that succeeded."""

    def __init__(self, store: Store, keys: Keys, *, refresh_s: float) -> None:
        self._store = store
        self._keys = keys
        self._refresh_s = refresh_s
        self._snapshot = Snapshot({}, {}, 0, float("-inf"))
        self._task: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[], None]] = []

    def on_refresh(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._snapshot.taken_at

    def store_time(self) -> float:
        """The store's Unix time, as far as is known."""
        return self._snapshot.now_ms / 1000 + self.age_s if self._snapshot.now_ms else time.time()

    def live(self) -> Iterable[Worker]:
        return self._snapshot.workers.values() if self.age_s < STALE_S else ()

    def ready(self, model: str) -> list[Worker]:
        return [worker for worker in self.live() if worker.card.name == model and worker.state == "ready"]

    def ready_models(self) -> dict[str, ModelCard]:
        """Models that can answer now, by name."""
        return {worker.card.name: worker.card for worker in self.live() if worker.state == "ready"}

    def knows(self, model: str) -> bool:
        return model in self._snapshot.models

    def has_lease(self, worker: Worker) -> bool:
        """Whether this start of the worker has a lease, under whatever epoch, as far as is known."""
        now = self._snapshot.workers.get(worker.worker_id)
        return now is not None and now.boot_id == worker.boot_id

    async def start(self) -> None:
        self._task = asyncio.create_task(self._refresh_for_ever())

    async def stop(self) -> None:
        await cancel(self._task)

    async def refresh(self) -> None:
        """Look now. Raises ApiError STORE_UNAVAILABLE."""
        now_ms, models, rows = await self._store.run(
            "routing_table",
            [self._keys.workers, self._keys.models],
            self._keys.worker_prefix,
            self._keys.slots_prefix,
        )
        workers = {row[0]: _worker(row[0], int(row[2]), _pairs(row[3])) for row in rows}
        cards = {name: ModelCard.model_validate_json(card) for name, card in _pairs(models).items()}
        self._snapshot = Snapshot(workers, cards, int(now_ms), time.monotonic())
        for callback in self._callbacks:
            callback()

    async def _refresh_for_ever(self) -> None:
        reachable = True
        while True:
            try:
                await self.refresh()
                if not reachable:
                    log_event(_logger, "store_back")
                reachable = True
            except ApiError:
                if reachable:
                    log_event(_logger, "store_unavailable", logging.WARNING)
                reachable = False
            await asyncio.sleep(self._refresh_s * random.uniform(0.8, 1.2))  # replicas shall not march in step


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _worker(worker_id: str, slots: int, fields: dict[str, str]) -> Worker:
    return Worker(
        worker_id=worker_id,
        epoch=int(fields["epoch"]),
        boot_id=fields["boot_id"],
        url=fields["url"],
        state=fields["state"],  # type: ignore[arg-type]  # validated when it was written
        card=ModelCard.model_validate_json(fields["card"]),
        capacity=Capacity.model_validate_json(fields["capacity"]),
        load=Load.model_validate_json(fields["load"]),
        slots=slots,
        beat_ms=int(fields["beat"]),
    )
