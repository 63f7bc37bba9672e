"""The life of a worker process: listen, load, register, serve, drain, leave.

It listens before the model is loaded, so that a supervisor's probes get answers from the beginning. SIGTERM or SIGINT
begins to drain: /ready fails at once, controllers are told, running answers go on up to a time limit, new ones are
refused. A second signal ends the process at once.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import uvicorn

from model_worker.app import create_app, is_new_work
from model_worker.config import WorkerSettings
from model_worker.engine_protocol import Engine
from model_worker.engines import load_engine
from model_worker.errors import EngineBroken, PortTaken
from model_worker.heartbeat import Heartbeat
from model_worker.worker import Worker
from service_kit import listening
from service_kit.logs import log_event
from service_kit.serving import server_config
from service_kit.shedding import Shedding

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_LAST_WORDS_S = 2  #: for aborted streams to send their `failed` event
_WATCH_S = 0.2


def listen(settings: WorkerSettings) -> socket.socket:
    """Bind and listen; called before the model is loaded. Raises PortTaken."""
    try:
        return listening.listen(settings.host, settings.port)
    except OSError as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise PortTaken(f"cannot listen on {settings.host}:{settings.port}: {reason}") from None


async def run(settings: WorkerSettings, listener: socket.socket) -> None:
    """Serve until a signal; raises StartError when the model cannot be loaded or the engine dies."""
    app = create_app(settings)
    worker: Worker = app.state.worker
    port = listener.getsockname()[1]
    if app.state.credentials.is_public and not settings.is_on_loopback:
        log_event(
            _logger,
            "open_to_the_network",
            hint="every client may use /v1; set AGON_API_KEYS to change that",
        )
    server = _Server(server_config(Shedding(app, is_new_work), drain_s=_LAST_WORDS_S, lifespan="off"))
    stop = _stop_signals(server)
    serving = asyncio.create_task(server.serve(sockets=listening.descriptors(listener)))
    log_event(_logger, "listening", host=settings.host, port=port, model=settings.model_name)
    try:
        engine = await _unless(stop, load_engine(settings))
        if engine is not None:
            await _serve(worker, engine, settings.advertised_url(port), stop)
    finally:
        server.should_exit = True
        await serving
    log_event(_logger, "stopped")


async def _serve(worker: Worker, engine: Engine, url: str, stop: asyncio.Event) -> None:
    if not gc.isenabled():  # __main__.py
        gc.freeze()  # modules stay for ever: no later collection needs to traverse them
        gc.enable()
    worker.attach(engine)
    log_event(
        _logger,
        "ready",
        model=engine.card.name,
        revision=engine.card.revision,
        kv_tokens=engine.capacity.kv_tokens,
        operators=engine.operators,
    )
    token = worker.settings.read_worker_token() or ""
    heartbeat = Heartbeat(worker, url=url, boot_id=uuid.uuid4().hex, token=token)
    heartbeat.start()
    try:
        await _unless(stop, _until_dead(engine))
        worker.begin_draining()
        if not engine.is_alive:
            raise EngineBroken("the engine has stopped after an unexpected error")
        log_event(_logger, "draining")
        heartbeat.announce()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(worker.settings.drain_s):
                await worker.wait_until_idle()
    finally:
        await engine.shutdown()
        await heartbeat.stop()


async def _until_dead(engine: Engine) -> None:
    while engine.is_alive:  # noqa: ASYNC110 - the engine lives in a thread or a process and has no event to wait for
        await asyncio.sleep(_WATCH_S)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None if `stop` was set first; then `work` is cancelled."""
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if task.done():
        return task.result()
    task.cancel()
    return None


def _stop_signals(server: "_Server") -> asyncio.Event:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            server.force_exit = True
            raise SystemExit(130)
        stop.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, on_signal)
    return stop


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which close its sockets: a draining worker must still answer probes."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
