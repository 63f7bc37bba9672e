"""A worker with our own engine, in the process of the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.engines import load_engine


@asynccontextmanager
async def served(folder: Path, **settings_of_test: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client, with the worker's token, of a worker of that model in this process."""
    defaults: dict[str, Any] = {"threads": 1, "kv_cache_bytes": 4 << 20, "worker_token": "token-for-tests-only"}
    settings = WorkerSettings(model=f"m={folder}", **(defaults | settings_of_test))
    engine = await load_engine(settings)
    try:
        headers = {"Authorization": "Bearer token-for-tests-only"}
        transport = httpx.ASGITransport(create_app(settings, engine))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            yield client
    finally:
        await engine.shutdown()
