"""A whole arena for attackers: a store process, a controller and workers with the demo models, all on real ports.

The quick tier runs a few battles in seconds. `make attacks` sets AGON_ATTACKS=full: 300 battles and 200 trials, with
figures printed.
"""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from controller.app import create_app as create_controller
from controller.config import Settings
from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Engine, Piece
from model_worker.engines import load_engine
from model_worker.heartbeat import Heartbeat, controller_client
from tests.controller.support.arena import WORKER_TOKEN, Arena, eventually, make_settings, running_arena
from tests.controller.support.running import running_app, running_store

DEMO_MODELS = Path(__file__).parents[2] / "demo_models"
MODELS = ("finch", "raven", "robin")
IS_FULL = os.environ.get("AGON_ATTACKS") == "full"
HEARTBEAT_S = 0.05 if IS_FULL else 0.2


@dataclass(frozen=True)
class Target:
    """A running arena and what an attacker can reach of it."""

    arena: Arena
    app: FastAPI  #: the controller's, for its list of routes
    worker_urls: dict[str, str]  #: by model


@dataclass(frozen=True)
class Engines:
    """Engines of the demo models, loaded once: a cache in them outlives an arena, as it outlives a visitor."""

    by_model: dict[str, Engine]


class LateEngine:
    """An engine whose answers begin `later_s` later."""

    def __init__(self, engine: Engine, later_s: float) -> None:
        self._engine = engine
        self._later_s = later_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, *args: Any, **options: Any) -> AsyncGenerator[Piece, None]:
        """What the engine generates, later."""
        async with contextlib.aclosing(self._engine.generate(*args, **options)) as pieces:
            yield await anext(pieces)
            await asyncio.sleep(self._later_s)
            async for piece in pieces:
                yield piece


def unlike(engines: Engines) -> Engines:
    """The same engines, each 0.3 s later than the one before it, which a busy machine does not make equal."""
    items = enumerate(engines.by_model.items())
    return Engines({model: LateEngine(engine, 0.3 * place) for place, (model, engine) in items})


def _settings(model: str, controller_url: str | None) -> WorkerSettings:
    return WorkerSettings(
        model=f"{model}={DEMO_MODELS / model}",
        threads=1,
        kv_cache_bytes=8 << 20,
        max_running=8,
        worker_token=WORKER_TOKEN,
        controller_urls=() if controller_url is None else (controller_url,),
    )


@contextlib.asynccontextmanager
async def loaded_engines() -> AsyncIterator[Engines]:
    """One engine for each demo model."""
    async with contextlib.AsyncExitStack() as stack:
        engines = {}
        for model in MODELS:
            engines[model] = await load_engine(_settings(model, None))
            stack.push_async_callback(engines[model].shutdown)
        yield Engines(engines)


@contextlib.asynccontextmanager
async def open_target(engines: Engines, folder: Path, **changes: object) -> AsyncIterator[Target]:
    """An arena that reports as fast as it can, which is best for an attacker. `changes`: settings of the controller."""
    folder.mkdir()
    with running_store(folder / "store") as store:
        settings = make_settings(
            store.url,
            "attacked",
            **{
                "heartbeat_s": HEARTBEAT_S,
                "table_refresh_s": 0.4 * HEARTBEAT_S,
                "battle_max_tokens": 40,
                "rate_per_minute": 600_000,
                "rate_burst": 10_000,
                "paced": Settings.model_fields["paced"].default,  # other tests show answers as they come
                **changes,
            },
        )
        async with running_arena(settings) as arena, contextlib.AsyncExitStack() as stack:
            worker_urls = {}
            for model, engine in engines.by_model.items():
                app = create_app(_settings(model, arena.url), engine)
                url = await stack.enter_async_context(running_app(app))
                client = await stack.enter_async_context(controller_client(WORKER_TOKEN))
                heartbeat = Heartbeat(app.state.models.get(), client, url=url, boot_id=uuid.uuid4().hex)
                heartbeat.start()
                stack.push_async_callback(heartbeat.stop)
                worker_urls[model] = url

            async def all_ready() -> bool:
                return len((await arena.client.get("/v1/models")).json()["data"]) == len(MODELS)

            await eventually(all_ready)
            yield Target(arena, create_controller(settings), worker_urls)


@pytest.fixture(autouse=True)
def _models_are_there() -> None:
    if not all((DEMO_MODELS / model / "model.safetensors").is_file() for model in MODELS):
        pytest.skip("the demo models are not there")


def client_of(url: str) -> httpx.AsyncClient:
    """A client without credentials. It drops idle connections long before the server does: a request on a connection
    that is being closed fails."""
    limits = httpx.Limits(max_connections=None, keepalive_expiry=1.0)
    return httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False, limits=limits)
