"""The models of a worker process: adds them, removes them, and knows the state of each.

One registration, queue and set of metrics for each (worker.py); what lies in memory is decided in residency.py, what
outlives the process is in models_file.py. Runs on the event loop; knows no HTTP.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from model_worker.adapter_engines import AdapterEngines
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Engine
from model_worker.errors import BadSettings, LoadFailed, StartError
from model_worker.hosted_engines import HostedEngines
from model_worker.metrics import Metrics
from model_worker.model_host import ModelHost, SeparateEngines
from model_worker.model_spec import ModelSpec
from model_worker.models_file import ModelsFile
from model_worker.residency import Residency, Resident
from model_worker.worker import Worker
from service_kit.logs import log_event
from wire.errors import ApiError, ErrorCode
from wire.served_models import MAX_MODELS, Residence, ServedModel, ServedModels
from wire.workers import WorkerState

_logger = logging.getLogger(__name__)

_FIRST_RETRY_S = 1.0  #: after a failure to load that may pass; doubled up to the next
_MAX_RETRY_S = 30.0


class Link(Protocol):
    """The registration of one model at the controllers."""

    def start(self) -> None:
        """Begin to register."""
        ...

    def announce(self) -> None:
        """The model's state, card or capacity has changed."""
        ...

    async def stop(self) -> None:
        """Deregister."""
        ...


class Models:
    """Owns the workers of this process, by the names of their models."""

    def __init__(
        self,
        settings: WorkerSettings,
        engine: Engine | None = None,
        *,
        host: ModelHost | None = None,
        link: Callable[[Worker], Link] | None = None,
    ) -> None:
        """`engine`: that of the only model, which is in memory already. `link` makes the registration of a model; None:
        there are no controllers."""
        self.settings = settings
        self.metrics = Metrics()
        self._link = link
        self._host = host or _host_for(settings)
        self._file = ModelsFile(settings.models_file)
        self._residency = Residency(
            self._host,
            limit_bytes=settings.memory,
            wake_timeout_s=settings.wake_timeout_s,
            on_unloadable=self._take_off,
        )
        self._entries: dict[str, _Entry] = {}
        #: The registration of the last model that was removed, draining: while the process serves none, controllers
        #: reach it through this, to have it add another.
        self._kept_link: Link | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._is_settled = engine is not None  #: the models of the start have been loaded or have failed
        for spec in settings.specs:
            self._enter(spec, engine)

    # Which models there are.

    def get(self, name: str | None = None) -> Worker:
        """The worker of a model; None: of the only one. Raises ApiError MODEL_NOT_FOUND."""
        if name is None and len(self._entries) == 1:
            return next(iter(self._entries.values())).worker
        if name is None:
            sentence = "This worker serves several models; name one." if self._entries else "This worker has no model."
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, sentence, param="model")
        return self._entry(name).worker

    @property
    def served(self) -> list[Worker]:
        """Models that can be asked now or are being loaded, by name."""
        entries = sorted(self._entries.items())
        return [entry.worker for _, entry in entries if entry.error is None and entry.worker.state != "draining"]

    @property
    def state(self) -> WorkerState:
        """State of the process: starting until the models of its start are loaded, then ready, then draining."""
        if self._is_draining:
            return "draining"
        return "ready" if self._is_settled else "starting"

    @property
    def is_ready(self) -> bool:
        """Whether requests sent now would be accepted, and controllers are told of every model that is served. A
        process whose models have all been removed is ready to add others."""
        known = [entry.worker for entry in self._entries.values() if entry.worker.state in ("ready", "asleep")]
        has_models = bool(known) or not self._entries
        is_able = self.state == "ready" and has_models and all(worker.is_ready for worker in known)
        return is_able and self.registration_problem is None

    @property
    def registration_problem(self) -> str | None:
        """Why no controller has ever registered a model of this process; None: one has, or there are none."""
        workers = [entry.worker for entry in self._entries.values() if entry.link is not None]
        problems = [worker.registration_problem for worker in workers]
        return next(iter(problems), None) if all(problems) else None

    def is_healthy(self) -> bool:
        """Whether every engine is alive and, while there is work, makes steps."""
        return all(entry.worker.is_healthy() for entry in self._entries.values())

    @property
    def has_dead_engine(self) -> bool:
        """Whether an engine has stopped after an error: only a new process helps."""
        workers = [entry.worker for entry in self._entries.values()]
        return any(worker.is_resident and not worker.engine.is_alive for worker in workers)

    def view(self) -> ServedModels:
        """All models with their states and their memory."""
        return ServedModels(
            models=tuple(self._row(entry) for _, entry in sorted(self._entries.items())),
            pool_bytes=self._host.pool_bytes,
            memory_bytes=self._residency.taken_bytes,
            memory_limit=self._residency.limit_bytes,
        )

    # The life of the process.

    async def start(self) -> None:
        """Load the models of the settings and those that were added before a restart, as far as memory allows, and
        offer those of the folder. Raises StartError when none of them can be served; those that cannot be loaded are
        reported and leave the others alone."""
        for spec in self._file.added:
            if spec.name not in self._entries and len(self._entries) < MAX_MODELS:
                self._enter(spec)
        first = sorted(self._entries.values(), key=lambda entry: entry.spec.adapter is not None)  # after their bases
        offered = [self._enter(spec) for spec in await asyncio.to_thread(self._found_on_disk)]
        for entry in (*first, *offered):  # all, before the first is loaded: the pool's size depends on them
            with contextlib.suppress(StartError):  # which comes again below
                await self._describe(entry)
        for entry in first:
            await self._bring_up(entry)
        for entry in offered:
            await self._bring_up(entry, is_loaded=False)
        errors = [entry.error for entry in self._entries.values()]
        if not self._entries:
            raise BadSettings("there is no model: give --model, or a --models-dir that holds one")
        if errors[0] is not None and all(errors):
            raise errors[0]
        for entry in self._entries.values():
            if isinstance(entry.error, LoadFailed):
                self._run(self._retry(entry))
        self._is_settled = True

    def begin_draining(self) -> None:
        """Refuse new answers of all models from now on."""
        self._is_draining = True
        for entry in self._entries.values():
            entry.worker.begin_draining()

    async def wait_until_idle(self) -> None:
        """Return when no answer is in progress."""
        for entry in list(self._entries.values()):
            await entry.worker.wait_until_idle()

    async def shutdown(self) -> None:
        """Abort what runs, end the engines, deregister."""
        self.begin_draining()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._residency.leave(name) for name in list(self._entries)))
        links = [self._kept_link, *(entry.link for entry in self._entries.values())]
        await asyncio.gather(*(link.stop() for link in links if link is not None))
        await self._host.close()

    # What an administrator asks.

    async def add(self, spec: ModelSpec) -> ServedModel:
        """Begin to load a model; `view` tells when it is resident, or why it is not. Raises ApiError INVALID_REQUEST
        for a name in use, too many models, or a source that is no model, with the loader's sentence."""
        if self._is_draining:
            raise ApiError(ErrorCode.SHUTTING_DOWN, "This worker is shutting down.")
        known = self._entries.get(spec.name)
        if known is not None and known.error is None:
            raise _refused(f"This worker serves a model {spec.name!r} already.", "name")
        if known is None and len(self._entries) >= MAX_MODELS:
            raise _refused(f"A worker serves at most {MAX_MODELS} models.", "name")
        if known is not None:
            await self._forget(known)
        entry = self._enter(spec)
        try:
            await self._describe(entry)
        except StartError as error:
            await self._forget(entry)
            raise _refused(str(error), "source") from None
        self._run(self._load_added(entry))
        return self._row(entry)

    async def remove(self, name: str) -> ServedModel:
        """Begin to remove a model: it finishes its answers, for as long as a worker drains, and is gone then. Without
        any model the process stays, and takes others."""
        entry = self._entry(name)
        if adapters := [spec.name for spec in self._adapters_on(name)]:
            raise _refused(f"Its adapters {', '.join(adapters)} need it: remove them first.", "name")
        if entry.worker.state != "draining":
            self._file.note_removed(name)
            entry.worker.begin_draining()
            self._run(self._drain(entry))
        return self._row(entry)

    async def sleep(self, name: str) -> ServedModel:
        """Let a model sleep when it has finished its answers. Raises ApiError WORKER_TIMEOUT when that takes too long;
        it falls asleep then later."""
        entry = self._entry(name)
        if entry.spec.is_hosted:
            raise _refused("A hosted model has no memory to give back.", "name")
        falling = self._run(self._residency.sleep(name))
        try:
            async with asyncio.timeout(self.settings.drain_s):
                await asyncio.shield(falling)
        except TimeoutError:
            raise ApiError(ErrorCode.WORKER_TIMEOUT, "The model is still answering; it sleeps afterwards.") from None
        return self._row(entry)

    async def wake(self, name: str) -> ServedModel:
        """Bring a model into memory. Raises ApiError MODEL_ASLEEP or NO_WORKER."""
        entry = self._entry(name)
        if entry.error is not None:
            raise ApiError(ErrorCode.NO_WORKER, f"The model cannot be loaded: {entry.error}")
        await self._residency.wake(name)
        return self._row(entry)

    # One model.

    def _enter(self, spec: ModelSpec, engine: Engine | None = None) -> "_Entry":
        async def wake() -> None:
            await self._residency.wake(spec.name)

        def on_change() -> None:
            self._residency.note_change()
            known = self._entries.get(spec.name)
            if known is not None and known.link is not None and known.shown != (shown := known.shows()):
                known.shown = shown
                known.link.announce()

        settings = self.settings.of_model(spec)
        worker = Worker(settings, engine, metrics=self.metrics, wake=wake, on_change=on_change)
        entry = self._entries[spec.name] = _Entry(spec, worker)
        return entry

    async def _bring_up(self, entry: "_Entry", *, is_loaded: bool = True) -> None:
        """Load a model of the start, or offer it from disk where it is not to be loaded or does not fit now."""
        if entry.worker.is_resident:
            await self._register(entry)
            return
        try:
            resident = await self._describe(entry)
            if is_loaded and self._residency.has_room(resident.wanted_bytes):
                await self._residency.load(entry.spec.name)
            else:
                entry.worker.describe(resident.description.card, resident.description.capacity)
        except StartError as error:
            entry.error = error
            log_event(_logger, "not_served", logging.ERROR, model=entry.spec.name, reason=str(error))
            return
        await self._register(entry)

    async def _describe(self, entry: "_Entry") -> Resident:
        if entry.resident is None:
            description = await self._host.describe(entry.worker.settings)
            entry.resident = self._residency.enter(entry.worker, description)
        return entry.resident

    async def _load_added(self, entry: "_Entry") -> None:
        try:
            await self._residency.load(entry.spec.name)
            self._file.note_added(entry.spec)
        except StartError as error:
            entry.error = error
            return
        if not self._is_draining and entry.worker.state != "draining":
            await self._register(entry)

    async def _retry(self, entry: "_Entry") -> None:
        """Load a model again that could not be loaded for a reason that may pass, until it is there or given up."""
        pause_s = _FIRST_RETRY_S
        while isinstance(entry.error, LoadFailed) and self._entries.get(entry.spec.name) is entry:
            await asyncio.sleep(pause_s)
            pause_s = min(_MAX_RETRY_S, 2 * pause_s)
            entry.error = None
            await self._bring_up(entry)

    async def _drain(self, entry: "_Entry") -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_s):
                await entry.worker.wait_until_idle()
        await self._forget(entry)
        log_event(_logger, "model_removed", model=entry.spec.name)

    async def _forget(self, entry: "_Entry") -> None:
        await self._residency.leave(entry.spec.name)
        link, entry.link = entry.link, None
        has_other = any(other.link is not None for other in self._entries.values())
        if link is not None and not has_other and not self._is_draining:
            self._kept_link = link
        elif link is not None:
            await link.stop()
        if self._entries.get(entry.spec.name) is entry:
            del self._entries[entry.spec.name]
            self.metrics.forget(entry.spec.name)

    def _take_off(self, name: str, error: StartError) -> None:
        """A model that was offered cannot be loaded: controllers forget it."""
        entry = self._entries[name]
        entry.error = error
        if entry.link is not None:
            self._run(entry.link.stop())
            entry.link = None

    async def _register(self, entry: "_Entry") -> None:
        if self._link is not None and entry.link is None:
            kept, self._kept_link = self._kept_link, None
            if kept is not None:
                await kept.stop()
            entry.shown = entry.shows()
            entry.link = self._link(entry.worker)
            entry.link.start()

    def _adapters_on(self, name: str) -> list[ModelSpec]:
        specs = [entry.spec for entry in self._entries.values()]
        return [spec for spec in specs if spec.adapter is not None and spec.adapter.base == name]

    def _found_on_disk(self) -> list[ModelSpec]:
        """Models of the folder that are neither served nor removed, as many as fit."""
        found = [
            spec
            for spec in self.settings.models_on_disk()
            if spec.name not in self._entries and spec.name not in self._file.removed
        ]
        room = MAX_MODELS - len(self._entries)
        if left_out := [spec.name for spec in found[room:]]:
            log_event(_logger, "models_left_out", logging.WARNING, models=left_out, most=MAX_MODELS)
        return found[:room]

    def _entry(self, name: str) -> "_Entry":
        entry = self._entries.get(name)
        if entry is None:
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, "This worker does not serve that model.", param="model")
        return entry

    def _row(self, entry: "_Entry") -> ServedModel:
        worker, resident = entry.worker, entry.resident
        load = worker.load()
        memory = 0
        if worker.is_resident and load is not None:
            weights = 0 if resident is None else resident.description.weights_bytes
            memory = weights + load.kv_bytes_used + load.kv_bytes_evictable + load.mirror_bytes_total
        return ServedModel(
            name=entry.spec.name,
            source=entry.spec.source,
            residence=entry.residence(),
            memory_bytes=memory,
            wanted_bytes=memory if resident is None else resident.wanted_bytes,
            running=0 if load is None else load.running,
            waiting=0 if load is None else load.waiting,
            idle_s=round(time.monotonic() - worker.used_at, 1),
            wake_s=None if worker.wake_s is None else round(worker.wake_s, 3),
            error=None if entry.error is None else str(entry.error),
            problem=None if worker.hosting is None else worker.hosting.problem,
            chat="template" if resident is None else resident.description.card.chat,
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ApiError):
            log_event(_logger, "model_work_failed", logging.ERROR, exc_info=error)


@dataclass(eq=False, slots=True)
class _Entry:
    """One model of the process."""

    spec: ModelSpec
    worker: Worker
    resident: Resident | None = None  #: None: its checkpoint has not been looked at
    link: Link | None = None
    error: StartError | None = None  #: why it is not served
    shown: object = None  #: what controllers have been told

    def residence(self) -> Residence:
        """Where the model is, for people."""
        if self.worker.state == "draining":
            return "draining"
        if self.error is not None:
            return "failed"
        if self.worker.is_resident:
            return "resident"
        if self.worker.state == "starting":
            return "loading"
        return "asleep" if self.resident is not None and self.resident.is_known else "on_disk"

    def shows(self) -> object:
        """What controllers are to be told at once when it changes."""
        load = self.worker.load()
        is_closed = load is not None and load.is_closed
        return self.worker.state, self.worker.card, self.worker.capacity, is_closed


def _host_for(settings: WorkerSettings) -> ModelHost:
    """Agon's own engines share a page pool, unless each is divided into several processes."""
    if settings.engine != "paged" or settings.engine_config.tensor_parallel > 1:
        return SeparateEngines()
    return AdapterEngines(HostedEngines(settings))


def _refused(sentence: str, param: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, sentence, param=param)
