"""Which models of the process are in memory: wakes those that are asked, within the budget, and lets others sleep.

Owns the transitions of every model between memory and disk; no two of one model overlap. The least recently used model
without an answer sleeps when another needs its memory. Runs on the event loop; `host` does the work.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from model_worker.engine_protocol import Description, Engine
from model_worker.errors import BadCheckpoint, LoadFailed, StartError
from model_worker.model_host import ModelHost
from model_worker.worker import Worker
from service_kit.logs import log_event
from wire.errors import ApiError, ErrorCode

_logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Resident:
    """A model as residency sees it. `wanted_bytes`: its weights, and its page pool if it has one to itself."""

    worker: Worker
    description: Description
    wanted_bytes: int
    is_known: bool = False  #: to the host: it has been loaded before
    base: str | None = None  #: the model that it is an adapter of, in memory whenever this one is
    taken_bytes: int = 0  #: of the budget, from the moment at which room was made
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  #: held by a transition
    waking: "asyncio.Task[None] | None" = None


class Residency:
    """Owns the budget. `limit_bytes` None: there is none. `on_unloadable` is told of a model whose checkpoint cannot be
    loaded as it is, when a request has found that out."""

    def __init__(
        self,
        host: ModelHost,
        *,
        limit_bytes: int | None,
        wake_timeout_s: float,
        on_unloadable: Callable[[str, StartError], None],
    ) -> None:
        self._host = host
        self._on_unloadable = on_unloadable
        self._limit = limit_bytes
        self._wake_timeout_s = wake_timeout_s
        self._models: dict[str, Resident] = {}
        self._making_room = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def limit_bytes(self) -> int | None:
        """The budget."""
        return self._limit

    @property
    def taken_bytes(self) -> int:
        """What the models in memory take of the budget, the page pool that they share included."""
        return self._host.pool_bytes + sum(model.taken_bytes for model in self._models.values())

    def has_room(self, num_bytes: int) -> bool:
        """Whether so much more fits into the budget now."""
        return self._limit is None or self.taken_bytes + num_bytes <= self._limit

    def enter(self, worker: Worker, description: Description) -> Resident:
        """Take in a model that is on disk. Raises BadCheckpoint when it never fits into the budget."""
        wanted = description.weights_bytes + description.pool_bytes
        if self._limit is not None and wanted + self._host.pool_bytes > self._limit:
            raise BadCheckpoint(
                f"{worker.name} takes {_mib(wanted + self._host.pool_bytes)} with its page pool, more than the budget "
                f"of {_mib(self._limit)} (AGON_MEMORY)"
            )
        self._models[worker.name] = model = Resident(worker, description, wanted, base=_base_of(worker))
        return model

    def note_change(self) -> None:
        """An answer has begun or ended."""
        self._changed.set()

    async def wake(self, name: str) -> None:
        """Return when the model is in memory. Raises ApiError MODEL_ASLEEP after the time limit, NO_WORKER when it
        cannot be loaded. Callers share one attempt, which goes on when they have left."""
        model = self._found(name)
        if model.worker.is_resident:
            return
        if model.waking is None or model.waking.done():
            model.waking = asyncio.create_task(self._wake(model))
        try:
            async with asyncio.timeout(self._wake_timeout_s):
                await asyncio.shield(model.waking)
        except TimeoutError:
            raise _asleep() from None
        except StartError as error:
            raise ApiError(ErrorCode.NO_WORKER, f"The model cannot be loaded: {error}", retry_after_s=5.0) from None

    async def load(self, name: str) -> None:
        """As `wake`, at the start or when a model is added: without a time limit, and raises StartError."""
        await self._wake(self._found(name), is_asked=False)

    async def sleep(self, name: str) -> None:
        """Let the model finish its answers and give back its memory; those that come meanwhile wake it again."""
        model = self._found(name)
        for adapter in [other for other in self._models.values() if other.base == name]:
            async with adapter.lock:
                await self._sleep(adapter)
        async with model.lock:
            if name not in self._needed_bases():  # else a request has woken an adapter meanwhile
                await self._sleep(model)

    async def leave(self, name: str) -> None:
        """End the model's engine, and forget the model. Idempotent."""
        model = self._models.get(name)
        if model is None:
            return
        if model.waking is not None and not model.waking.done():
            await asyncio.wait((model.waking,))
        async with model.lock:
            model.worker.detach()
            await self._host.remove(name)
            self._models.pop(name, None)
        self._changed.set()

    async def _wake(self, model: Resident, *, is_asked: bool = True) -> None:
        async with model.lock:
            if model.worker.is_resident or self._models.get(model.worker.name) is not model:
                return
            started = time.monotonic()
            if model.base is not None:
                await self._wake(self._found(model.base))  # it stays: this model's lock is held, or it is in memory
            await self._make_room(model)
            try:
                engine = await self._bring(model)
            except StartError as error:
                model.taken_bytes = 0
                self._changed.set()
                if isinstance(error, BadCheckpoint):
                    self._on_unloadable(model.worker.name, error)
                log_event(_logger, "not_loaded", logging.ERROR, model=model.worker.name, reason=str(error))
                raise
            seconds = time.monotonic() - started
            if is_asked:
                model.worker.wake_s = seconds
                model.worker.metrics.observe_wake(seconds)
            model.worker.used_at = time.monotonic()
            model.worker.attach(engine)
            log_event(_logger, "model_awake", model=model.worker.name, seconds=round(seconds, 3))

    async def _bring(self, model: Resident) -> Engine:
        if model.is_known:
            return await self._host.wake(model.worker.name)
        engine = await self._host.add(model.worker.settings)
        model.is_known = True
        return engine

    async def _make_room(self, model: Resident) -> None:
        """Take the model's bytes of the budget, after other models have slept. Raises LoadFailed when no room came in
        time."""
        give_up_at = time.monotonic() + self._wake_timeout_s
        async with self._making_room:
            while not self.has_room(model.wanted_bytes):
                self._changed.clear()
                victim = least_recently_used(self._models.values(), besides=model, kept=self._needed_bases())
                if victim is not None:
                    async with victim.lock:
                        if victim.worker.is_unused:
                            await self._sleep(victim)
                    continue
                if (wait_s := give_up_at - time.monotonic()) <= 0:
                    raise LoadFailed(f"no memory for {model.worker.name}: all models in memory are answering")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
            model.taken_bytes = model.wanted_bytes

    async def _sleep(self, model: Resident) -> None:
        if not model.worker.is_resident:
            return
        model.worker.detach()
        await model.worker.wait_until_unused()
        await self._host.sleep(model.worker.name)
        model.taken_bytes = 0
        self._changed.set()
        log_event(_logger, "model_asleep", model=model.worker.name)

    def _needed_bases(self) -> set[str]:
        """Bases of adapters that are in memory, or come and go."""
        models = self._models.values()
        return {model.base for model in models if model.base and (model.worker.is_resident or model.lock.locked())}

    def _found(self, name: str) -> Resident:
        model = self._models.get(name)
        if model is None:
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, "This worker does not serve that model.", param="model")
        return model


def _base_of(worker: Worker) -> str | None:
    [spec] = worker.settings.specs
    return None if spec.adapter is None else spec.adapter.base


def least_recently_used(
    models: Iterable[Resident], *, besides: Resident, kept: Collection[str] = ()
) -> Resident | None:
    """The model in memory, without an answer and not among those that are kept, whose last use is the longest ago;
    None: all are in use."""
    idle = [
        model
        for model in models
        if model is not besides
        and model.worker.name not in kept
        and model.wanted_bytes > 0  # a hosted model takes none
        and model.worker.is_resident
        and model.worker.is_unused
        and not model.lock.locked()
    ]
    return min(idle, key=lambda model: model.worker.used_at, default=None)


def _asleep() -> ApiError:
    return ApiError(ErrorCode.MODEL_ASLEEP, "The model did not wake in time. Ask again.", retry_after_s=5.0)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"
