"""A host of echo engines: what a worker process is over, without a model."""

import asyncio

from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from model_worker.engine_protocol import Description, Engine
from model_worker.errors import BadCheckpoint, LoadFailed

MIB = 2**20


class EchoHost:
    """A ModelHost of echo engines. A source `missing` is no model, one `broken` cannot be loaded, one `later` can be at
    the second attempt, `lab/base` is a base model. `may_load`: loads wait for it."""

    def __init__(self, *, weights_bytes: int = 64 * MIB) -> None:
        self.weights_bytes = weights_bytes
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.engines: dict[str, EchoEngine | None] = {}
        self.num_loads = 0
        self.pool_bytes = 0
        self.later = {"later"}
        self.log: list[str] = []

    async def describe(self, settings: WorkerSettings) -> Description:
        if settings.model_path == "missing":
            raise BadCheckpoint("cannot load missing: there is no such folder")
        engine = EchoEngine(model_name=settings.model_name, max_running=4)
        capacity = engine.capacity.model_copy(update={"kv_tokens": 0})
        card = engine.card.model_copy(update={"chat": "none" if settings.model_path == "lab/base" else "template"})
        return Description(card, capacity, self.weights_bytes, pool_bytes=0)

    async def add(self, settings: WorkerSettings) -> Engine:
        await self.may_load.wait()
        if settings.model_path.rpartition("/")[2] == "broken":
            raise BadCheckpoint("cannot load broken: weights are cut off")
        if settings.model_path in self.later:
            self.later.discard(settings.model_path)
            raise LoadFailed("cannot load later: no memory")
        self.engines[settings.model_name] = None
        return await self.wake(settings.model_name)

    async def sleep(self, name: str) -> None:
        engine, self.engines[name] = self.engines[name], None
        assert engine is not None
        assert engine.load().running == 0
        await engine.shutdown()
        self.log.append(f"sleep {name}")

    async def wake(self, name: str) -> Engine:
        await self.may_load.wait()
        self.num_loads += 1
        self.log.append(f"wake {name}")
        engine = self.engines[name] = EchoEngine(model_name=name, tokens_per_s=2000, max_running=4)
        return engine

    async def close(self) -> None:
        assert self.engines == {}

    async def remove(self, name: str) -> None:
        engine = self.engines.pop(name, None)
        if engine is not None:
            await engine.shutdown()
