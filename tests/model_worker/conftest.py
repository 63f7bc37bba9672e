"""A worker on a real port in the test's own event loop, and clients for it."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from model_worker.engine_protocol import Engine
from model_worker.models import Models
from model_worker.worker import Worker
from service_kit.heads import BoundedHttp
from tests.api_page import only_declared_errors
from tests.quick_server import QuickServer
from wire.sse import SseDecoder, SseEvent

WORKER_TOKEN = "worker-token-for-tests"


@dataclass(frozen=True)
class Served:
    """A running worker, and a client that carries the worker token."""

    url: str
    client: httpx.AsyncClient
    models: Models
    engine: Engine

    @property
    def worker(self) -> Worker:
        return self.models.get()


@pytest.fixture(autouse=True)
def _no_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AGON_"):
            monkeypatch.delenv(name)


@pytest.fixture
def make_settings() -> Callable[..., WorkerSettings]:
    def make(**given: Any) -> WorkerSettings:
        return WorkerSettings(**{"model": "echo", "engine": "echo", "worker_token": WORKER_TOKEN, **given})

    return make


@pytest.fixture
def serve(
    make_settings: Callable[..., WorkerSettings],
) -> Callable[..., AbstractAsyncContextManager[Served]]:
    """`async with serve(engine, **settings) as served`"""

    @asynccontextmanager
    async def serve_engine(engine: Engine | None = None, **given: Any) -> AsyncIterator[Served]:
        engine = engine or EchoEngine(tokens_per_s=5000)
        app = create_app(make_settings(**given), engine)
        hooks = {"response": [only_declared_errors(app)]}
        async with listening(app) as url, client_of(url, event_hooks=hooks) as client:
            yield Served(url=url, client=client, models=app.state.models, engine=engine)

    return serve_engine


@pytest.fixture
def serve_app() -> Callable[[FastAPI], AbstractAsyncContextManager[str]]:
    return listening


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # so that a client that stops reading is felt
        server = QuickServer(uvicorn.Config(app, http=BoundedHttp, ws="none", lifespan="off", log_config=None))
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[listener])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.force_exit = True
            await server.shutdown(sockets=[listener])


def client_of(url: str, **options: Any) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {WORKER_TOKEN}", "Content-Type": "application/json"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=20, trust_env=False, **options)


@pytest.fixture
def in_process(make_settings: Callable[..., WorkerSettings]) -> Callable[..., httpx.AsyncClient]:
    """A client of a worker without sockets, for what does not depend on them."""

    def make(engine: Engine | None = None, **given: Any) -> httpx.AsyncClient:
        app = create_app(make_settings(**given), engine or EchoEngine(tokens_per_s=5000))
        hooks = {"response": [only_declared_errors(app)]}
        return client_of("http://127.0.0.1", transport=httpx.ASGITransport(app), event_hooks=hooks)

    return make


@pytest.fixture
def chat_body() -> Callable[..., dict[str, Any]]:
    def make(text: str = "one two three four", **options: Any) -> dict[str, Any]:
        return {"model": "echo", "messages": [{"role": "user", "content": text}], **options}

    return make


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait until a condition holds: `await eventually(lambda: ...)`."""

    async def wait(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.002)

    return wait


@pytest.fixture
def read_events() -> Callable[[httpx.Response], Any]:
    """The events of a streamed response, as they come."""

    async def read(response: httpx.Response) -> AsyncIterator[SseEvent]:
        decoder = SseDecoder()
        async for chunk in response.aiter_raw():
            for event in decoder.feed(chunk):
                yield event

    return read
