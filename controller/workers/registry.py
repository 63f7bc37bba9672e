"""The registry of workers in Redis: which worker serves which model, under which epoch, until when.

A worker is one model of one process. Its id is a hash of the process's URL and the model's name, so a restarted worker
replaces its predecessor at once, and its new epoch fences the predecessor off; what an earlier process registered at
the same URL is removed. A registration expires by the store's clock unless heartbeats renew it. The routes decide which
callers may register, dispatch.py decides which worker gets a request.
"""

import contextlib
import hashlib
import logging
import time

from controller.store.keys import Keys
from controller.store.store import Store
from controller.workers.routing_table import RoutingTable, Worker
from controller.workers.worker_hosts import MAX_URL_CHARS, WorkerHosts
from service_kit.logs import log_event
from wire.errors import ApiError, ErrorCode
from wire.ids import WorkerId
from wire.releases import mismatch
from wire.workers import HeartbeatReply, HeartbeatRequest, RegisterReply, RegisterRequest, WorkerView

_logger = logging.getLogger(__name__)

_LOG_REFUSED_EVERY_S = 60.0
_MAX_REFUSED = 256  #: URLs whose last log line is remembered


class WorkerRegistry:
    """Writes registrations. `heartbeat_s` and `lease_s` are told to the workers: how often to renew a registration,
    and how long it lasts without a heartbeat."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        table: RoutingTable,
        hosts: WorkerHosts,
        *,
        heartbeat_s: float,
        lease_s: float,
    ) -> None:
        self._store = store
        self._keys = keys
        self._table = table
        self._hosts = hosts
        self._heartbeat_s = heartbeat_s
        self._lease_s = lease_s
        self._refused_at: dict[str, float] = {}  #: by URL: time.monotonic() of the last log line

    @property
    def _lease_ms(self) -> int:
        return round(self._lease_s * 1000)

    async def register(self, request: RegisterRequest, *, is_from_here: bool = True) -> RegisterReply:
        """Register a worker under a new epoch; with a known boot id only renew its registration. `is_from_here`: it
        runs on the controller's machine.

        Raises ApiError INVALID_REQUEST or FORBIDDEN for its URL (see WorkerHosts) and for its release,
        STORE_UNAVAILABLE.
        """
        try:
            url = self._hosts.checked(request.url, is_from_here=is_from_here)
            if (problem := mismatch(request.version)) is not None:
                raise ApiError(ErrorCode.INVALID_REQUEST, problem[:1].upper() + problem[1:], param="version")
        except ApiError as error:
            self._note_refused(request, error)
            raise
        worker_id = WorkerId("w-" + hashlib.sha256(f"{url} {request.card.name}".encode()).hexdigest()[:12])
        epoch = await self._store.run(
            "register_worker",
            [self._keys.workers, self._keys.worker(worker_id), self._keys.epoch, self._keys.models],
            worker_id,
            request.boot_id,
            url,
            request.card.name,
            request.card.model_dump_json(),
            request.capacity.model_dump_json(),
            request.state,
            self._lease_ms,
        )
        log_event(_logger, "worker_registered", worker=worker_id, model=request.card.name, epoch=int(epoch))
        for other in list(self._table.snapshot.workers.values()):
            if other.url == url and other.boot_id != request.boot_id and other.worker_id != worker_id:
                with contextlib.suppress(ApiError):  # that process has registered again meanwhile
                    await self.leave(other.worker_id, other.epoch)
        await self._table.refresh()
        return RegisterReply(
            worker_id=worker_id, epoch=int(epoch), heartbeat_s=self._heartbeat_s, lease_s=self._lease_s
        )

    async def heartbeat(self, worker_id: WorkerId, request: HeartbeatRequest) -> HeartbeatReply:
        """Renew a registration and store the worker's state and load. Raises ApiError STALE_EPOCH when a newer start
        of the worker has registered; an expired registration is no error (`known` is false then)."""
        answer = await self._store.run(
            "heartbeat",
            [self._keys.workers, self._keys.worker(worker_id)],
            worker_id,
            request.epoch,
            request.state,
            request.load.model_dump_json(),
            self._lease_ms,
        )
        if answer == "stale":
            raise _stale()
        return HeartbeatReply(known=answer == "ok")

    async def leave(self, worker_id: WorkerId, epoch: int | None) -> None:
        """Remove a worker from the registry. Idempotent. With an epoch it raises ApiError STALE_EPOCH when a newer
        start has registered, so that a predecessor cannot remove its successor."""
        answer = await self._store.run(
            "leave",
            [self._keys.workers, self._keys.worker(worker_id)],
            worker_id,
            "" if epoch is None else epoch,
        )
        if answer == "stale":
            raise _stale()
        log_event(_logger, "worker_left", worker=worker_id)
        await self._table.refresh()

    def _note_refused(self, request: RegisterRequest, error: ApiError) -> None:
        """Log a refused registration, once a minute for each URL: workers try again every second."""
        now = time.monotonic()
        if now - self._refused_at.get(request.url, float("-inf")) < _LOG_REFUSED_EVERY_S:
            return
        if len(self._refused_at) >= _MAX_REFUSED:
            self._refused_at.clear()
        self._refused_at[request.url] = now
        url, model = request.url[:MAX_URL_CHARS], request.card.name
        log_event(_logger, "worker_refused", logging.WARNING, url=url, model=model, reason=error.message)

    def views(self) -> list[WorkerView]:
        """All registered workers by model and id, for the workers page."""
        now_ms = round(self._table.store_time() * 1000)
        workers = sorted(self._table.live(), key=lambda worker: (worker.card.name, worker.worker_id))
        return [_view(worker, now_ms) for worker in workers]


def _view(worker: Worker, now_ms: int) -> WorkerView:
    return WorkerView(
        worker_id=worker.worker_id,
        model=worker.card.name,
        state=worker.state,
        in_flight=worker.num_leases,
        card=worker.card,
        capacity=worker.capacity,
        load=worker.load,
        last_heartbeat_age_s=max(0.0, (now_ms - worker.beat_ms) / 1000),
    )


def _stale() -> ApiError:
    return ApiError(ErrorCode.STALE_EPOCH, "A newer start of this worker has registered; this one is fenced off.")
