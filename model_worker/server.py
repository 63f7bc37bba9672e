"""The life of a worker process: listen, load, register, serve, drain, leave.

It listens before its models are loaded, so that a supervisor's probes get answers from the beginning. SIGTERM or SIGINT
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
from model_worker.errors import EngineBroken, PortTaken
from model_worker.heartbeat import Heartbeat, controller_client
from model_worker.models import Models
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
    """Bind and listen; called before the models are loaded. Raises PortTaken."""
    try:
        return listening.listen(settings.host, settings.port)
    except OSError as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise PortTaken(f"cannot listen on {settings.host}:{settings.port}: {reason}") from None


async def run(settings: WorkerSettings, listener: socket.socket) -> None:
    """Serve until a signal; raises StartError when no model can be loaded or an engine dies."""
    port = listener.getsockname()[1]
    client = controller_client(settings.token_text, ca_file=settings.ca_file)
    boot_id = uuid.uuid4().hex

    def link(worker: Worker) -> Heartbeat:
        return Heartbeat(worker, client, url=settings.advertised_url(port), boot_id=boot_id)

    models = Models(settings, link=link)
    app = create_app(settings, models=models)
    if app.state.credentials.is_public and not settings.is_on_loopback:
        log_event(
            _logger,
            "open_to_the_network",
            hint="every client may use /v1; set AGON_API_KEYS to change that",
        )
    config = server_config(
        Shedding(app, is_new_work), drain_s=_LAST_WORDS_S, lifespan="off", tls_pair=settings.tls_pair
    )
    server = _Server(config)
    stop = _stop_signals(server)
    serving = asyncio.create_task(server.serve(sockets=listening.descriptors(listener)))
    log_event(_logger, "listening", host=settings.host, port=port, models=settings.model_names)
    try:
        await _serve(models, stop)
    finally:
        server.should_exit = True
        await serving
        await client.aclose()
    log_event(_logger, "stopped")


async def _serve(models: Models, stop: asyncio.Event) -> None:
    try:
        await _unless(stop, models.start())
        if stop.is_set():
            return
        if not gc.isenabled():  # __main__.py
            gc.freeze()  # modules stay for ever: no later collection needs to traverse them
            gc.enable()
        for worker in models.served:
            log_event(
                _logger,
                "ready",
                model=worker.name,
                revision=worker.card.revision,
                kv_tokens=worker.capacity.kv_tokens,
                operators=worker.engine.operators if worker.is_resident else None,
            )
        await _unless(stop, _until_dead(models))
        is_dead = models.has_dead_engine
        models.begin_draining()
        if is_dead:
            raise EngineBroken("the engine has stopped after an unexpected error")
        log_event(_logger, "draining")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(models.settings.drain_s):
                await models.wait_until_idle()
    finally:
        await models.shutdown()


async def _until_dead(models: Models) -> None:
    while not models.has_dead_engine:  # noqa: ASYNC110 - an engine lives in a thread or a process and has no event to wait for
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
