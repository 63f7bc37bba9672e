"""Where the engines of a process live: loads them, puts them to sleep, wakes them.

The seam between a worker and its engines: worker and routes know this protocol only. Calls for one model never overlap
(residency.py); those for different models may.
"""

import asyncio
import gc
from dataclasses import dataclass
from typing import Protocol

from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Description, Engine
from model_worker.engines import describe_model, load_engine


class ModelHost(Protocol):
    """Holds the engines of one process by the names of their models."""

    @property
    def pool_bytes(self) -> int:
        """The page pool that the models share; 0: each has its own, or it is not there yet."""
        ...

    async def describe(self, settings: WorkerSettings) -> Description:
        """The only model of `settings`, from its configuration. Raises StartError."""
        ...

    async def add(self, settings: WorkerSettings) -> Engine:
        """Load the only model of `settings`. Raises StartError; then nothing of it is left."""
        ...

    async def sleep(self, name: str) -> None:
        """Give back the memory of a model without requests."""
        ...

    async def wake(self, name: str) -> Engine:
        """A sleeping model in memory again; the engine may be another object. Raises StartError; it sleeps then."""
        ...

    async def remove(self, name: str) -> None:
        """Abort the model's requests and forget it. Idempotent."""
        ...

    async def close(self) -> None:
        """End what is left when all models have been removed. Idempotent."""
        ...


@dataclass(slots=True)
class _Held:
    settings: WorkerSettings
    engine: Engine | None  #: None: it sleeps


class SeparateEngines:
    """A ModelHost in which every model has an engine, a page pool and threads of its own: for engines in processes of
    their own, and for those that are not Agon's."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._loading = asyncio.Lock()  #: torch's number of threads, which a load sets, is the process's
        self.pool_bytes = 0

    async def describe(self, settings: WorkerSettings) -> Description:
        """See ModelHost."""
        return await describe_model(settings)

    async def add(self, settings: WorkerSettings) -> Engine:
        """See ModelHost."""
        async with self._loading:
            engine = await load_engine(settings)
        self._held[settings.model_name] = _Held(settings, engine)
        return engine

    async def sleep(self, name: str) -> None:
        """See ModelHost."""
        held = self._held[name]
        engine, held.engine = held.engine, None
        if engine is not None:
            await engine.shutdown()
            del engine
            gc.collect()  # tensors in cycles would stay until the next collection

    async def wake(self, name: str) -> Engine:
        """See ModelHost."""
        held = self._held[name]
        if held.engine is None:
            async with self._loading:
                held.engine = await load_engine(held.settings)
        return held.engine

    async def remove(self, name: str) -> None:
        """See ModelHost."""
        if name in self._held:
            await self.sleep(name)
            del self._held[name]

    async def close(self) -> None:
        """See ModelHost."""
