"""Agon's own engines of one process over one page pool: a ModelHost over engine.hosting.EngineHost.

The pool's size is decided when the first model is loaded: AGON_KV_CACHE_BYTES, a share of AGON_MEMORY, or what the
models that are known by then would have got by themselves, within a share of the free memory. Models that need a
process of their own (CUDA with AGON_ENGINE_PROCESS=auto), and those with a draft model, have an engine and a pool by
themselves.
"""

import asyncio
import contextlib
import importlib
from typing import TYPE_CHECKING

from engine.drafts.ngram import NGRAM
from engine.errors import InvalidRequest
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Description, Engine
from model_worker.engines import describe_model
from model_worker.model_host import SeparateEngines

if TYPE_CHECKING:
    from engine.hosting import EngineHost

#: The page pool takes this share of the budget, unless its size is set.
POOL_SHARE = 0.25


class HostedEngines:
    """See ModelHost. `settings` are those of the process."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._separate = SeparateEngines()
        self._host: EngineHost | None = None
        self._engines: dict[str, Engine] = {}
        self._held: dict[str, WorkerSettings] = {}
        self._wanted: dict[str, int] = {}  #: pool bytes of models that have been described
        self._pool_bytes = self._given_pool_bytes()

    @property
    def pool_bytes(self) -> int:
        """The pool that the models share; 0 while none is loaded and its size is not given."""
        return self._pool_bytes or 0

    async def describe(self, settings: WorkerSettings) -> Description:
        """See ModelHost."""
        if await self._is_separate(settings):
            return await self._separate.describe(settings)
        if self._pool_bytes is not None:
            settings = settings.model_copy(update={"kv_cache_bytes": self._pool_bytes})
        found = await describe_model(settings)
        self._wanted[settings.model_name] = found.pool_bytes
        return Description(found.card, found.capacity, found.weights_bytes, pool_bytes=0)

    async def add(self, settings: WorkerSettings) -> Engine:
        """See ModelHost."""
        if await self._is_separate(settings):
            return await self._separate.add(settings)
        from model_worker.paged_loading import load_paged

        if self._host is None:
            self._host = await asyncio.to_thread(self._make_host)
        name = settings.model_name
        engine = await load_paged(settings, self._host)
        self._engines[name], self._held[name] = engine, settings
        return engine

    async def sleep(self, name: str) -> None:
        """See ModelHost."""
        if name not in self._engines:
            await self._separate.sleep(name)
            return
        assert self._host is not None
        await self._host.sleep(name)

    async def wake(self, name: str) -> Engine:
        """See ModelHost."""
        if name not in self._engines:
            return await self._separate.wake(name)
        from model_worker.paged_loading import wake_hosted

        assert self._host is not None
        await wake_hosted(self._host, self._held[name])
        return self._engines[name]

    async def remove(self, name: str) -> None:
        """See ModelHost."""
        self._wanted.pop(name, None)
        if name not in self._engines:
            await self._separate.remove(name)
            return
        assert self._host is not None
        del self._engines[name], self._held[name]
        with contextlib.suppress(InvalidRequest):  # its engine has stopped after an error
            await self._host.remove(name)

    async def close(self) -> None:
        """See ModelHost."""
        host, self._host = self._host, None
        if host is not None:
            await host.shutdown()

    async def _is_separate(self, settings: WorkerSettings) -> bool:
        if settings.is_hosted:
            return True  # and torch is not needed
        if settings.engine_config.draft not in (None, NGRAM):  # the pool of the two is cut for both
            return True
        await asyncio.to_thread(importlib.import_module, "model_worker.paged_loading")
        from model_worker.paged_loading import has_own_process

        return await asyncio.to_thread(has_own_process, settings)

    def _given_pool_bytes(self) -> int | None:
        given = self._settings.engine_config.kv_cache_bytes
        if given is not None or self._settings.memory is None:
            return given
        return int(self._settings.memory * POOL_SHARE)

    def _make_host(self) -> "EngineHost":
        from engine.hosting import EngineHost
        from model_worker.paged_loading import most_pool_bytes

        config = self._settings.engine_config
        if self._pool_bytes is None:
            self._pool_bytes = min(sum(self._wanted.values()), most_pool_bytes(config))
        return EngineHost(pool_bytes=self._pool_bytes, num_threads=config.num_threads)
