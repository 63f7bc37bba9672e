"""Which worker gets a request, and the slots that requests hold while they run.

A slot is a lease in Redis, renewed here while it is held and released in a `finally`; what a crashed controller held
runs out. The two sides of a battle get their slots together or not at all. Knows no HTTP; relay talks to the workers.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from controller.access.rate_limits import Charge
from controller.store.keys import SLOTS_GRACE_MS, Keys
from controller.store.store import Store
from controller.workers.breaker import CircuitBreaker
from controller.workers.routing_table import RoutingTable, Worker
from service_kit.cancellation import cancel
from service_kit.logs import log_event
from wire.errors import ApiError, ErrorCode

MAX_PICKS = 4  #: how often a full worker is swapped for another before the request is refused
AFFINITY_MARGIN = 0.5  #: the worker of the last turn keeps the conversation while it is at most this much fuller

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """A slot wanted: at a worker of `model`, rather at `preferred`, never at one of `excluded`."""

    model: str
    preferred: str | None = None
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Slot:
    worker: Worker
    lease_id: str


class Lane:
    """One request's hold on a worker. Its slot may move to another replica; `async with` releases it for certain."""

    def __init__(self, dispatcher: "Dispatcher", slot: Slot) -> None:
        self._dispatcher = dispatcher
        self.slot = slot

    @property
    def worker(self) -> Worker:
        return self.slot.worker

    async def move(self, excluded: frozenset[str]) -> None:
        """Take a slot at another replica of the same model, then give the old one back."""
        old = self.slot
        [lane] = await self._dispatcher.reserve([Wish(old.worker.card.name, excluded=excluded)])
        self.slot = lane.slot
        await self._dispatcher.release(old)

    async def close(self) -> None:
        await self._dispatcher.release(self.slot)

    async def __aenter__(self) -> "Lane":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Dispatcher:
    """Owns the slots that this controller holds."""

    def __init__(
        self, store: Store, keys: Keys, table: RoutingTable, breaker: CircuitBreaker, *, slot_lease_s: float
    ) -> None:
        self._store = store
        self._keys = keys
        self._table = table
        self._breaker = breaker
        self._lease_ms = round(slot_lease_s * 1000)
        self._held: dict[str, Slot] = {}
        self._since_refresh: Counter[str] = Counter()  #: slots taken and given back since the table was read
        self._releases: set[asyncio.Task[None]] = set()
        self._renewal: asyncio.Task[None] | None = None
        table.on_refresh(self._on_refresh)

    async def start(self) -> None:
        self._renewal = asyncio.create_task(self._renew_for_ever())

    async def stop(self) -> None:
        await cancel(self._renewal)
        await asyncio.gather(*self._releases, return_exceptions=True)

    @property
    def num_held(self) -> int:
        return len(self._held)

    def has_room(self, model: str) -> bool:
        """Whether a worker of `model` would take one more request, as far as is known here."""
        return any(self._is_open(worker) and self._slots(worker) < worker.limit for worker in self._table.ready(model))

    async def reserve(self, wishes: Sequence[Wish], charge: Charge | None = None) -> list[Lane]:
        """One lane for each wish, or ApiError: MODEL_NOT_FOUND, NO_WORKER, QUEUE_FULL, STORE_UNAVAILABLE, and with a
        charge, which is taken once and before any slot, RATE_LIMITED."""
        full: set[str] = set()
        for _ in range(MAX_PICKS):
            slots = [Slot(self._pick(wish, full), secrets.token_hex(8)) for wish in wishes]
            refusal = await self._ask_for(slots, charge)
            if charge is not None:
                charge.settle(max(0, -refusal))
                charge = None
            if refusal == 0:
                return [self._hold(slot) for slot in slots]
            full.add(slots[refusal - 1].worker.worker_id)
        raise _queue_full(wishes[0].model)

    async def _ask_for(self, slots: list[Slot], charge: Charge | None) -> int:
        """What reserve_slots.lua says."""
        keys = [self._keys.slots(slot.worker.worker_id) for slot in slots]
        args = [arg for slot in slots for arg in (slot.lease_id, slot.worker.limit)]
        if charge is not None:
            keys.append(charge.bucket)
            args += (charge.interval_us, charge.burst)
        try:
            refusal = await self._store.run("reserve_slots", keys, self._lease_ms, SLOTS_GRACE_MS, len(slots), *args)
        except BaseException:  # cancelled or without an answer: the leases may exist
            for slot in slots:
                self._release_soon(slot)
            raise
        return int(refusal)

    async def release(self, slot: Slot) -> None:
        """Give a slot back. Goes through even when the caller is being cancelled; a store that is away is no error,
        because the lease then runs out by itself."""
        if self._held.pop(slot.lease_id, None) is not None:
            self._since_refresh[slot.worker.worker_id] -= 1
            await asyncio.shield(self._release_soon(slot))

    def _release_soon(self, slot: Slot) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._forget_lease(slot))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        return task

    def _hold(self, slot: Slot) -> Lane:
        self._held[slot.lease_id] = slot
        self._since_refresh[slot.worker.worker_id] += 1
        self._breaker.chosen((slot.worker.worker_id, slot.worker.epoch))
        return Lane(self, slot)

    def _pick(self, wish: Wish, full: set[str]) -> Worker:
        ready = [worker for worker in self._table.ready(wish.model) if worker.worker_id not in wish.excluded]
        open_ = [worker for worker in ready if self._is_open(worker)]
        if not open_:
            raise self._nobody(wish.model)
        free = [worker for worker in open_ if worker.worker_id not in full]  # who is full, the store decides
        if not free:
            raise _queue_full(wish.model)
        # Two choices: nearly as good as the best of all, without every controller running to the same idle worker.
        best = min(random.sample(free, min(2, len(free))), key=self._fullness)
        preferred = next((worker for worker in free if worker.worker_id == wish.preferred), None)
        if preferred is not None and self._fullness(preferred) <= self._fullness(best) + AFFINITY_MARGIN:
            return preferred
        return best

    def _nobody(self, model: str) -> ApiError:
        if self._table.age_s == float("inf"):
            return ApiError(ErrorCode.STORE_UNAVAILABLE, "The arena has not reached its store yet.")
        if not self._table.knows(model):
            return ApiError(ErrorCode.MODEL_NOT_FOUND, f"The model {model!r} does not exist.", param="model")
        return ApiError(
            ErrorCode.NO_WORKER, f"No worker of the model {model!r} can answer now.", param="model", retry_after_s=5
        )

    def _is_open(self, worker: Worker) -> bool:
        return self._breaker.allows((worker.worker_id, worker.epoch), worker.beat_ms)

    def _slots(self, worker: Worker) -> int:
        return worker.slots + self._since_refresh[worker.worker_id]

    def _fullness(self, worker: Worker) -> float:
        """Requests at the worker as a share of what it runs at once; above 1 they wait. Its own report is older than
        the count of slots, but knows of requests that came past the arena."""
        return max(self._slots(worker), worker.load.running + worker.load.waiting) / worker.capacity.max_running

    async def _forget_lease(self, slot: Slot) -> None:
        with contextlib.suppress(ApiError), self._store.guard("release_slot"):
            await self._store.redis.zrem(self._keys.slots(slot.worker.worker_id), slot.lease_id)

    def _on_refresh(self) -> None:
        self._since_refresh.clear()
        self._breaker.forget_all_but({(worker.worker_id, worker.epoch) for worker in self._table.live()})

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            slots = list(self._held.values())
            if not slots:
                continue
            keys = [self._keys.slots(slot.worker.worker_id) for slot in slots]
            try:
                await self._store.run(
                    "renew_slots", keys, self._lease_ms, SLOTS_GRACE_MS, *(slot.lease_id for slot in slots)
                )
            except ApiError:
                log_event(_logger, "slots_not_renewed", logging.WARNING, slots=len(slots))


def _queue_full(model: str) -> ApiError:
    return ApiError(ErrorCode.QUEUE_FULL, f"All workers of the model {model!r} are full.", retry_after_s=2)
