"""How our services are served: uvicorn with the limits of the kit."""

import asyncio
import contextlib
import gc
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from service_kit.connections import Connections, raise_descriptor_limit
from service_kit.heads import BoundedHttp
from service_kit.listening import descriptors
from service_kit.renewal import RenewedCertificate

LAST_WORDS_S = 3
_KEEP_ALIVE_S = 5
_EXIT_NOT_STARTED = 3  #: uvicorn's


def server_config(
    app: ASGIApp,
    *,
    drain_s: float,
    lifespan: Literal["on", "off"] = "on",
    tls_pair: tuple[Path, Path] | None = None,
) -> uvicorn.Config:
    """The configuration of a service's only server; raises the process's limit of descriptors.

    `drain_s`: seconds that running answers get when it stops. `tls_pair`: files of certificate and key; it then speaks
    HTTPS only, and takes a renewed pair at the next connection. No forwarding header is read: each service decides
    which proxies it believes.
    """

    class Http(BoundedHttp):
        room = Connections.for_descriptors(raise_descriptor_limit())

    cert_file, key_file = tls_pair or (None, None)
    return _Config(
        app,
        http=Http,
        ssl_certfile=cert_file,
        ssl_keyfile=key_file,
        ws="none",  # no service has WebSockets, and their connections would have no limits
        lifespan=lifespan,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(drain_s),
        log_config=None,
        access_log=False,  # paths and queries hold ids of battles and keys of sessions
        server_header=False,
        proxy_headers=False,
    )


class _Config(uvicorn.Config):
    def load(self) -> None:
        """As uvicorn's; makes the context of TLS."""
        super().load()
        if self.ssl is not None:
            assert self.ssl_certfile is not None
            assert self.ssl_keyfile is not None
            RenewedCertificate(Path(self.ssl_certfile), Path(self.ssl_keyfile)).follow(self.ssl)


def serve(config: uvicorn.Config, listener: socket.socket, *, on_drained: Callable[[], None] | None = None) -> None:
    """Serve on `listener` until a signal; exits with 3 if the app cannot start.

    `on_drained` is called when a stop has waited for `drain_s`: streams then have LAST_WORDS_S for their last events,
    before they are cut.
    """
    server = uvicorn.Server(config) if on_drained is None else _DrainingServer(config, on_drained)
    gc.collect()
    gc.freeze()  # modules and the app stay for ever, and visiting them stopped the event loop for 0.1 s each time
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn has stopped in order and raises the signal again
        server.run(sockets=descriptors(listener))
    if not server.started:
        sys.exit(_EXIT_NOT_STARTED)


class _DrainingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_drained: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_drained = on_drained

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which waits for all responses to end."""
        drain_s = self.config.timeout_graceful_shutdown or 0
        self.config.timeout_graceful_shutdown = drain_s + LAST_WORDS_S
        timer = asyncio.get_running_loop().call_later(drain_s, self._on_drained)
        await super().shutdown(sockets)
        timer.cancel()
