"""Pictures of the workers' page pools, asked from the workers on demand and shared by all requests.

Each worker is asked at most once in MAX_AGE_S, and only when a request for the pictures comes. A worker that is slow,
away or has no pool is left out, because nothing depends on the pictures. Runs on the event loop.
"""

import asyncio
import time
from collections.abc import Iterable

import aiohttp
from pydantic import ValidationError

from controller.workers.routing_table import RoutingTable, Worker
from controller.workers.worker_http import WorkerHttp
from wire.workers import PoolPicture, PoolView, WorkerPool

POOL_PATH = "/internal/pool"
MAX_AGE_S = 1.0
TIMEOUT_S = 1.0  #: a worker answers between two engine steps
MAX_AT_ONCE = 16  #: workers asked at the same time


class Pools:
    """Owns the last pictures and the limit on concurrent questions to workers."""

    def __init__(self, workers: WorkerHttp, table: RoutingTable) -> None:
        self._workers = workers
        self._table = table
        self._lock = asyncio.Lock()
        self._room = asyncio.Semaphore(MAX_AT_ONCE)
        self._views: tuple[WorkerPool, ...] = ()
        self._taken_at = float("-inf")

    async def views(self) -> tuple[WorkerPool, ...]:
        """Pictures in the order of worker ids, at most MAX_AGE_S old. Concurrent callers wait for the same answer."""
        async with self._lock:
            if time.monotonic() - self._taken_at > MAX_AGE_S:
                self._views = await self._ask_all(self._table.live())
                self._taken_at = time.monotonic()
            return self._views

    async def _ask_all(self, workers: Iterable[Worker]) -> tuple[WorkerPool, ...]:
        have_pools = [worker for worker in workers if worker.load.kv_bytes_total]
        asked = sorted(have_pools, key=lambda worker: worker.worker_id)
        pictures = await asyncio.gather(*(self._ask(worker) for worker in asked))
        return tuple(
            WorkerPool(worker_id=worker.worker_id, picture=picture)
            for worker, picture in zip(asked, pictures, strict=True)
            if picture is not None
        )

    async def _ask(self, worker: Worker) -> PoolPicture | None:
        try:
            model = {"model": worker.card.name}
            ask = self._workers.session.get(worker.url + POOL_PATH, params=model, allow_redirects=False)
            async with self._room, asyncio.timeout(TIMEOUT_S), ask as answer:
                content = await answer.read()
            return PoolView.model_validate_json(content).picture if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValidationError):
            return None
