"""Chooses the worker for a request and holds the capacity lease that admits the request there.

A capacity lease is one place at a worker, reserved in Redis for one request. The controller that serves the request
renews the lease while it holds it and releases it in a `finally`; leases of a crashed controller expire. Both sides of
a battle get their leases in one script call, or neither gets one. Knows no HTTP: relay.py talks to the workers.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from controller.access.rate_limits import Charge
from controller.store.keys import LEASES_GRACE_MS, Keys
from controller.store.store import Store
from controller.workers.breaker import CircuitBreaker, WorkerStart
from controller.workers.congestion import KINDS, Congestion, Kind
from controller.workers.routing_table import RoutingTable, Worker
from service_kit.logs import log_event
from wire.errors import ApiError, ErrorCode
from wire.ids import WorkerId

MAX_PICKS = 4  #: workers that may turn out to be full before the request is refused
AFFINITY_MARGIN = 0.5  #: the worker of the last turn keeps a conversation while its load is at most this much higher
RENEWALS_PER_LEASE = 3  #: so that a lease survives two renewals that fail
ALONE_S = 1.0  #: after a failure of the store, requests that can do without it do not ask it for this long
DEMAND_MS = 2000  #: after a refusal, the other kind of work leaves half of the places free for this long

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """A request for one lease: at a worker of `model`, preferably the id `preferred`, never one of `excluded`."""

    model: str
    preferred: str | None = None
    excluded: frozenset[WorkerStart] = frozenset()


@dataclass(frozen=True)
class Lease:
    """One place at `worker`, as a member of the worker's sorted set in Redis. Made by Dispatcher."""

    worker: Worker
    lease_id: str


class Lane:
    """The lease of one running request. On failover it moves to another replica; `async with` releases it at exit."""

    def __init__(self, dispatcher: "Dispatcher", lease: Lease, kind: Kind, *, needs_store: bool) -> None:
        self._dispatcher = dispatcher
        self._kind: Kind = kind
        self._needs_store = needs_store
        self.lease = lease

    @property
    def worker(self) -> Worker:
        """The worker that serves the request now; another one after `move`."""
        return self.lease.worker

    async def move(self, excluded: frozenset[WorkerStart]) -> None:
        """Reserve a place at another replica of the same model, then release the old one.

        Raises ApiError when no replica outside `excluded` takes the request; the lane then keeps its lease.
        """
        old = self.lease
        wish = Wish(old.worker.card.name, excluded=excluded)
        [lane] = await self._dispatcher.reserve([wish], self._kind, needs_store=self._needs_store)
        self.lease = lane.lease
        await self._dispatcher.release(old)

    async def close(self) -> None:
        """Release the lease. Idempotent."""
        await self._dispatcher.release(self.lease)

    async def __aenter__(self) -> "Lane":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Dispatcher:
    """Owns the leases that this controller holds. `renew_leases` is background work. Runs on the event loop."""

    def __init__(
        self, store: Store, keys: Keys, table: RoutingTable, breaker: CircuitBreaker, *, lease_s: float
    ) -> None:
        self._store = store
        self._keys = keys
        self._table = table
        self._breaker = breaker
        self._lease_ms = round(lease_s * 1000)
        self._held: dict[str, Lease] = {}
        self._since_refresh: Counter[str] = Counter()  #: by worker: leases taken minus released since the last refresh
        self._congestion = Congestion()
        self._writes: set[asyncio.Task[None]] = set()  #: those that nothing waits for
        self._unreleased: dict[str, Lease] = {}  #: given back while the store was away
        self._alone_until = 0.0  #: time.monotonic(): see ALONE_S
        table.on_refresh(self._on_refresh)

    @property
    def renewal_s(self) -> float:
        """Seconds between two calls of `renew_leases`."""
        return self._lease_ms / 1000 / RENEWALS_PER_LEASE

    async def close(self) -> None:
        """Wait for writes under way. Leases that are still held expire."""
        await asyncio.gather(*self._writes, return_exceptions=True)

    @property
    def num_held(self) -> int:
        """Leases that this controller holds now."""
        return len(self._held)

    def has_room(self, model: str) -> bool:
        """Whether a worker of `model` has a free place, by the routing table and this controller's own changes."""
        ready = self._table.ready(model)
        return any(self._may_get_work(worker) and self._has_place(worker) for worker in ready)

    async def reserve(
        self, wishes: Sequence[Wish], kind: Kind, charge: Charge | None = None, *, needs_store: bool = True
    ) -> list[Lane]:
        """One lane for each wish, or none at all.

        `charge` is a place in a rate limit; it is taken once, before any lease. Without `needs_store` this controller
        decides alone while the store does not answer: by its last routing table, for as long as that routes, and by
        what it knows of the rate limit. Raises ApiError: MODEL_NOT_FOUND, NO_WORKER, QUEUE_FULL, STORE_UNAVAILABLE, and
        with a charge RATE_LIMITED.
        """
        if kind == "chat" and (off := next((wish.model for wish in wishes if self._table.is_off(wish.model)), None)):
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, f"The model {off!r} is switched off.", param="model")
        for _ in range(MAX_PICKS):
            leases = [Lease(self._pick(wish, kind), f"{kind}-{secrets.token_hex(8)}") for wish in wishes]
            refusal = await self._decide(leases, kind, charge, needs_store=needs_store)
            charge = None
            if refusal == 0:
                return [self._hold(lease, kind, needs_store=needs_store) for lease in leases]
            self._congestion.note_full(leases[refusal - 1].worker.worker_id, kind)
        raise self._queue_full(wishes[0].model)

    def refused_for_room(self, models: Iterable[str], kind: Kind) -> float:
        """Count a refusal that was decided by `has_room`. Returns the seconds after which the client should ask again.

        The store is told of it, so that the other kind of work makes room at the workers of these models.
        """
        workers = [worker.worker_id for model in models for worker in self._table.ready(model)]
        if unaware := self._congestion.unaware(workers, kind):
            self._write_soon(self._note_demand(unaware, kind))
        return min(self._congestion.refused(model) for model in models)

    async def _decide(self, leases: list[Lease], kind: Kind, charge: Charge | None, *, needs_store: bool) -> int:
        """0, or the number (from 1) of the first lease whose worker is full. Raises ApiError RATE_LIMITED and
        STORE_UNAVAILABLE."""
        if needs_store or time.monotonic() >= self._alone_until:
            try:
                refusal, filled_us = await self._ask_for(leases, kind, charge)
            except ApiError as error:
                if needs_store or error.code is not ErrorCode.STORE_UNAVAILABLE:
                    raise
                self._alone_until = time.monotonic() + ALONE_S
            else:
                if charge is not None:
                    charge.settle(max(0, -refusal), filled_us)
                return refusal
        if charge is not None:
            charge.settle_alone()
        full = (number for number, lease in enumerate(leases, start=1) if not self._has_place(lease.worker))
        return next(full, 0)

    def _has_place(self, worker: Worker) -> bool:
        return self._num_leases(worker) < worker.limit

    async def _ask_for(self, leases: list[Lease], kind: Kind, charge: Charge | None) -> tuple[int, int]:
        """The answer of reserve_leases.lua."""
        [other] = set(KINDS) - {kind}
        keys: list[str] = []
        for worker_id in (lease.worker.worker_id for lease in leases):
            keys += (self._keys.leases(worker_id), self._keys.demand(worker_id, kind))
            keys.append(self._keys.demand(worker_id, other))
        args = [arg for lease in leases for arg in (lease.lease_id, lease.worker.limit)]
        if charge is not None:
            keys.append(charge.bucket)
            args += (charge.interval_us, charge.burst)
        fixed = (self._lease_ms, LEASES_GRACE_MS, DEMAND_MS, kind, len(leases))
        try:
            refusal, filled_us = await self._store.run("reserve_leases", keys, *fixed, *args)
        except BaseException:  # cancelled or without an answer: the leases may exist
            for lease in leases:
                self._release_soon(lease)
            raise
        return int(refusal), int(filled_us)

    async def release(self, lease: Lease) -> None:
        """Give a lease back. Idempotent, and completes even when the caller is cancelled. Raises nothing when the store
        is away: the lease is given back when it answers again, or expires."""
        if self._held.pop(lease.lease_id, None) is not None:
            self._since_refresh[lease.worker.worker_id] -= 1
            self._congestion.note_free(lease.worker.worker_id)
            removal = self._release_soon(lease)
            if time.monotonic() >= self._alone_until:  # else it would only hold up the end of an answer
                await asyncio.shield(removal)

    def _release_soon(self, lease: Lease) -> "asyncio.Task[None]":
        return self._write_soon(self._remove(lease))

    def _write_soon(self, write: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

    def _hold(self, lease: Lease, kind: Kind, *, needs_store: bool) -> Lane:
        self._held[lease.lease_id] = lease
        self._since_refresh[lease.worker.worker_id] += 1
        self._breaker.chosen((lease.worker.worker_id, lease.worker.epoch))
        self._congestion.accepted(lease.worker.card.name)
        return Lane(self, lease, kind, needs_store=needs_store)

    def _pick(self, wish: Wish, kind: Kind) -> Worker:
        ready = [worker for worker in self._table.ready(wish.model) if _start(worker) not in wish.excluded]
        allowed = [worker for worker in ready if self._may_get_work(worker)]
        if not allowed:
            raise self._no_worker(wish.model)
        # The store decides which worker is full; the local count of leases is as old as the routing table.
        candidates = [worker for worker in allowed if not self._congestion.is_full(worker.worker_id, kind)]
        if not candidates:
            raise self._queue_full(wish.model)
        # Power of two choices: nearly as good as the least loaded worker of all, and controllers with equal tables do
        # not all choose the same idle worker.
        best = min(random.sample(candidates, min(2, len(candidates))), key=self._relative_load)
        preferred = next((worker for worker in candidates if worker.worker_id == wish.preferred), None)
        if preferred is not None and self._relative_load(preferred) <= self._relative_load(best) + AFFINITY_MARGIN:
            return preferred
        return best

    def _no_worker(self, model: str) -> ApiError:
        if self._table.age_s == float("inf"):
            return ApiError(ErrorCode.STORE_UNAVAILABLE, "The arena has not reached its store yet.")
        if not self._table.knows(model):
            return ApiError(ErrorCode.MODEL_NOT_FOUND, f"The model {model!r} does not exist.", param="model")
        return ApiError(
            ErrorCode.NO_WORKER, f"No worker of the model {model!r} can answer now.", param="model", retry_after_s=5
        )

    def _may_get_work(self, worker: Worker) -> bool:
        return self._breaker.allows((worker.worker_id, worker.epoch), worker.beat_ms)

    def _num_leases(self, worker: Worker) -> int:
        return worker.num_leases + self._since_refresh[worker.worker_id]

    def _relative_load(self, worker: Worker) -> float:
        """Requests at the worker divided by the number it runs at once; above 1 requests wait. The worker's own report
        is older than the count of leases, but includes requests that reached the worker without a controller."""
        num_requests = max(self._num_leases(worker), worker.load.running + worker.load.waiting)
        return num_requests / worker.capacity.max_running

    def _queue_full(self, model: str) -> ApiError:
        wait_s = self._congestion.refused(model)
        return ApiError(ErrorCode.QUEUE_FULL, f"All workers of the model {model!r} are full.", retry_after_s=wait_s)

    async def _remove(self, *leases: Lease) -> None:
        """One lease, or those that could not be removed before. They must not fill the workers until they expire: a
        store that often starts again would leave no place."""
        for lease in leases:
            try:
                with self._store.guard("release_lease"):
                    await self._store.redis.zrem(self._keys.leases(lease.worker.worker_id), lease.lease_id)
            except ApiError:
                self._unreleased[lease.lease_id] = lease
                return  # the others, if any, are still in _unreleased
            self._unreleased.pop(lease.lease_id, None)

    async def _note_demand(self, worker_ids: Sequence[WorkerId], kind: Kind) -> None:
        with contextlib.suppress(ApiError):
            await self._store.run("note_demand", [self._keys.demand(worker, kind) for worker in worker_ids], DEMAND_MS)

    def _on_refresh(self) -> None:
        if self._unreleased:
            self._write_soon(self._remove(*self._unreleased.values()))
        self._since_refresh.clear()
        live = list(self._table.live())
        self._breaker.forget_all_but({(worker.worker_id, worker.epoch) for worker in live})
        self._congestion.forget_all_but({worker.worker_id for worker in live}, {worker.card.name for worker in live})

    async def renew_leases(self) -> None:
        """Renew all leases that are held. While the store is away, that is only logged."""
        leases = list(self._held.values())
        if not leases:
            return
        keys = [self._keys.leases(lease.worker.worker_id) for lease in leases]
        lease_ids = [lease.lease_id for lease in leases]
        try:
            await self._store.run("renew_leases", keys, self._lease_ms, LEASES_GRACE_MS, *lease_ids)
        except ApiError:
            log_event(_logger, "slots_not_renewed", logging.WARNING, slots=len(leases))


def _start(worker: Worker) -> WorkerStart:
    return worker.worker_id, worker.epoch
