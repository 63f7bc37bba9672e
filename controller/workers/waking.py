"""Brings the models of a turn into memory before it begins, and makes both sides wait alike.

The wait of an anonymous turn must not tell its models. So it depends on the whole arena: while any model that could be
drawn sleeps, every such turn waits, whether or not its own models sleep, for the longest time that a model of the
arena has lately taken, rounded up to one of WAITS_S; a model that takes longer moves the wait to the next of these.
Knows no battle. Runs on the event loop.
"""

import asyncio
import json
from collections.abc import Iterable

import aiohttp

from controller.workers.routing_table import RoutingTable, Worker
from controller.workers.worker_http import WorkerHttp
from wire.errors import ApiError, ErrorCode
from wire.ids import WorkerId
from wire.served_models import NamedModel

WAKE_PATH = "/internal/models/wake"
#: Seconds that a turn may wait, in steps of which each tells little: there are not many.
WAITS_S = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 45.0, 60.0)


class Waking:
    """`timeout_s`: longest wait for a worker that wakes a model."""

    def __init__(self, workers: WorkerHttp, table: RoutingTable, *, timeout_s: float) -> None:
        self._workers = workers
        self._table = table
        self._timeout_s = timeout_s

    def is_needed(self, workers: Iterable[Worker], *, is_even: bool) -> bool:
        """Whether a turn at `workers` waits. `is_even`: as every other turn of hidden models does."""
        asked = self._drawable() if is_even else workers
        return any(worker.state == "asleep" for worker in asked)

    async def wake(self, workers: Iterable[Worker], *, is_even: bool) -> dict[WorkerId, ApiError]:
        """Wake the models of `workers`, all at once. Returns when all are awake or have failed, and if `is_even` not
        before the arena's common wait is over. The failures by worker."""
        clock = asyncio.get_running_loop()
        began = clock.time()
        asleep = [worker for worker in workers if worker.state == "asleep"]
        found = await asyncio.gather(*(self._wake(worker) for worker in asleep))
        if is_even:
            took_s = max(clock.time() - began, self._usual_s())
            until_s = next((wait_s for wait_s in WAITS_S if wait_s >= took_s), took_s)
            await asyncio.sleep(began + until_s - clock.time())
        failures = {worker.worker_id: error for worker, error in zip(asleep, found, strict=True) if error is not None}
        return failures

    def _drawable(self) -> list[Worker]:
        return [worker for worker in self._table.live() if not self._table.is_off(worker.card.name)]

    def _usual_s(self) -> float:
        return max((worker.load.wake_s for worker in self._drawable()), default=0.0)

    async def _wake(self, worker: Worker) -> ApiError | None:
        body = NamedModel(name=worker.card.name).model_dump_json().encode()
        headers = {"Content-Type": "application/json"}
        try:
            ask = self._workers.session.post(worker.url + WAKE_PATH, data=body, headers=headers, allow_redirects=False)
            async with asyncio.timeout(self._timeout_s), ask as answer:
                content = await answer.read()
            return None if answer.status == 200 else ApiError.from_body(json.loads(content))
        except TimeoutError:
            return ApiError(ErrorCode.MODEL_ASLEEP, "The model did not wake in time.")
        except (aiohttp.ClientError, OSError, ValueError):
            return None  # the request itself finds out, and goes to another replica
