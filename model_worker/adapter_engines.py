"""Adapters beside the engines of a process: a model `BASE+FOLDER` is a LoRA adapter on another model of the process. It
shares its engine, its steps and its memory.

A ModelHost over another one. An adapter that sleeps is unloaded. Its base must be in memory whenever it is:
residency.py sees to that.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Description, Engine
from model_worker.errors import BadCheckpoint
from model_worker.model_host import ModelHost
from model_worker.model_spec import AdapterSource

if TYPE_CHECKING:
    from model_worker.paged_engine import PagedEngine


@dataclass(slots=True)
class _Held:
    source: AdapterSource
    engine: Engine | None  #: None: it sleeps


class AdapterEngines:
    """See ModelHost. `bases` has the models that are no adapters."""

    def __init__(self, bases: ModelHost) -> None:
        self._bases = bases
        self._described: dict[str, Description] = {}  #: of bases
        self._engines: dict[str, Engine] = {}  #: of bases, awake or not
        self._held: dict[str, _Held] = {}

    @property
    def pool_bytes(self) -> int:
        """See ModelHost."""
        return self._bases.pool_bytes

    async def describe(self, settings: WorkerSettings) -> Description:
        """See ModelHost."""
        [spec] = settings.specs
        source = spec.adapter
        if source is None:
            found = self._described[spec.name] = await self._bases.describe(settings)
            return found
        base = self._described.get(source.base)
        if base is None:
            raise BadCheckpoint(f"{spec.name}: this worker serves no model {source.base!r} for the adapter")
        num_bytes = await asyncio.to_thread(_weights_bytes, source)
        card = base.card.model_copy(update={"name": spec.name})
        return Description(card, base.capacity, num_bytes, pool_bytes=0)

    async def add(self, settings: WorkerSettings) -> Engine:
        """See ModelHost."""
        [spec] = settings.specs
        source = spec.adapter
        if source is None:
            engine = self._engines[spec.name] = await self._bases.add(settings)
            return engine
        engine = await self._load(spec.name, source)
        self._held[spec.name] = _Held(source, engine)
        return engine

    async def sleep(self, name: str) -> None:
        """See ModelHost."""
        held = self._held.get(name)
        if held is None:
            await self._bases.sleep(name)
            return
        engine, held.engine = held.engine, None
        if engine is not None:
            await engine.shutdown()

    async def wake(self, name: str) -> Engine:
        """See ModelHost."""
        held = self._held.get(name)
        if held is None:
            engine = self._engines[name] = await self._bases.wake(name)
            return engine
        if held.engine is None:
            held.engine = await self._load(name, held.source)
        return held.engine

    async def remove(self, name: str) -> None:
        """See ModelHost."""
        if name in self._held:
            await self.sleep(name)
            del self._held[name]
            return
        self._described.pop(name, None)
        self._engines.pop(name, None)
        await self._bases.remove(name)

    async def close(self) -> None:
        """See ModelHost."""
        await self._bases.close()

    async def _load(self, name: str, source: AdapterSource) -> Engine:
        base = self._engines.get(source.base)
        if base is None:
            raise BadCheckpoint(f"{name}: the model {source.base!r} of the adapter is not loaded")
        engine: PagedEngine = base  # type: ignore[assignment]  # only Agon's own engines have adapters
        return await engine.with_adapter(name, source.folder)


def _weights_bytes(source: AdapterSource) -> int:
    try:
        return (Path(source.folder) / "adapter_model.safetensors").stat().st_size
    except OSError:
        raise BadCheckpoint(f"{source.folder} is no folder of an adapter: no adapter_model.safetensors") from None
