"""Several models on one device of one process: one page pool, one engine thread, one team of CPU threads.

Made in an event loop; its methods may be awaited from any event loop of the process. Each model has an AsyncEngine of
its own, with which requests are made as with a model that is alone. Knows no HTTP.
"""

import asyncio
from collections.abc import Mapping
from typing import Self

from engine.async_engine import AsyncEngine
from engine.backend import Backend, Receiver
from engine.config import EngineConfig
from engine.errors import InvalidRequest
from engine.hosting.host_thread import HostThread
from engine.hosting.hosted_backend import HostedBackend
from engine.hosting.hosted_model import HostedModel, ModelState
from engine.hosting.pool_report import PoolReport

MAX_MODELS = 16


class EngineHost:
    """Owner of the models of a device. End it with `shutdown`."""

    def __init__(self, *, pool_bytes: int | None = None, num_threads: int | None = None) -> None:
        """Starts the engine thread. pool_bytes: of the page pool of all models; None: a share of the memory that is
        free when the first model has its weights. num_threads: of the team of CPU threads; None: torch's default.

        EngineConfig.kv_cache_bytes of the models is not used.
        """
        self._thread = HostThread(pool_bytes, num_threads)
        self._models: dict[str, HostedModel] = {}
        self._engines: dict[str, AsyncEngine] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def add(
        self, name: str, config: EngineConfig, *, floor_bytes: int = 0, ceiling_bytes: int | None = None
    ) -> AsyncEngine:
        """Load a model while the others go on; returns when it serves.

        floor_bytes: of the pool; what it has less than that while it has requests it gets back from models that use
        more than their share. ceiling_bytes: the most that its requests use at once; None: the whole pool.

        Raises what loading raises (CheckpointError, OperatorsUnavailable), NoRoomInPool where its pages cannot share
        the pool, and InvalidRequest for a name that is taken, a seventeenth model, or a model of several processes.
        """
        self._forget_ended()
        if name in self._models:
            raise InvalidRequest(f"there is a model {name!r} already", param="name")
        if len(self._models) >= MAX_MODELS:
            raise InvalidRequest(f"a host has at most {MAX_MODELS} models", param="name")
        if config.tensor_parallel > 1:
            raise InvalidRequest("a model of several processes has a host of its own", param="tensor_parallel")

        def make_backend(receiver: Receiver) -> Backend:
            model = self._models[name] = HostedModel(name, config, receiver, floor_bytes, ceiling_bytes)
            self._thread.start(model)
            return HostedBackend(self._thread, model)

        try:
            engine = await AsyncEngine.over(make_backend)
        except BaseException:
            self._models.pop(name, None)
            raise
        self._engines[name] = engine
        return engine

    async def remove(self, name: str, drain_s: float = 0.0) -> None:
        """Refuse new requests of this model, let running ones finish for up to drain_s seconds, abort the rest, and
        give its memory back."""
        model = self._model(name)
        await self._engines[name].shutdown(drain_s)
        if self._models.get(name) is model:
            del self._models[name], self._engines[name]

    async def sleep(self, name: str) -> None:
        """Give up the weights and pages of a model. Its running requests stop where they are, new ones wait, and all go
        on with the same tokens once it is awake. On CPU the packed weights stay in the system's file cache as long as
        there is memory. Without effect on a model that sleeps."""
        await asyncio.wrap_future(self._thread.sleep(self._model(name)))

    async def wake(self, name: str) -> None:
        """Read the weights of a sleeping model again, while the others go on; returns when its requests go on. Raises
        what loading raises; the model then sleeps on. Without effect on a model that is awake."""
        await asyncio.wrap_future(self._thread.wake(self._model(name)))

    def states(self) -> Mapping[str, ModelState]:
        """The state of each model, by its name."""
        self._forget_ended()
        return {name: model.state for name, model in self._models.items()}

    def engine(self, name: str) -> AsyncEngine:
        """The engine of a model that has been added. Raises InvalidRequest for an unknown name."""
        self._model(name)
        return self._engines[name]

    async def report(self) -> PoolReport:
        """What the page pool holds, by model, between two steps."""
        return await asyncio.wrap_future(self._thread.report())

    async def check_integrity(self) -> None:
        """Raise AssertionError unless every page of the pool is accounted for. O(pool): for tests."""
        await asyncio.wrap_future(self._thread.check_integrity())

    async def shutdown(self, drain_s: float = 0.0) -> None:
        """Remove all models, and end the thread."""
        await asyncio.gather(*(self.remove(name, drain_s) for name in list(self._engines)))
        await asyncio.wrap_future(self._thread.end())

    def _model(self, name: str) -> HostedModel:
        self._forget_ended()
        if name not in self._engines:
            raise InvalidRequest(f"there is no model {name!r}", param="name")
        return self._models[name]

    def _forget_ended(self) -> None:
        """Models end by themselves after an error, or through their engine's `shutdown`."""
        for name in [name for name, model in self._models.items() if model.state == "ending"]:
            del self._models[name]
            self._engines.pop(name, None)
