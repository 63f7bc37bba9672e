"""How our services are served: uvicorn with the limits of the kit."""

import contextlib
import socket
import sys
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from service_kit.connections import Connections, raise_descriptor_limit
from service_kit.heads import BoundedHttp
from service_kit.listening import descriptors

_KEEP_ALIVE_S = 5
_EXIT_NOT_STARTED = 3  #: uvicorn's


def server_config(
    app: ASGIApp,
    *,
    drain_s: float,
    lifespan: Literal["on", "off"] = "on",
    trusted_proxies: str = "",
) -> uvicorn.Config:
    """The configuration of a service's only server; raises the process's limit of descriptors.

    `drain_s`: seconds that running answers get when it stops. `trusted_proxies`: addresses separated by commas, or `*`,
    whose X-Forwarded-For replaces the client's address; empty: it is not read.
    """

    class Http(BoundedHttp):
        room = Connections.for_descriptors(raise_descriptor_limit())

    return uvicorn.Config(
        app,
        http=Http,
        ws="none",  # no service has WebSockets, and their connections would have no limits
        lifespan=lifespan,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(drain_s),
        log_config=None,
        access_log=False,  # paths and queries hold ids of battles and keys of sessions
        server_header=False,
        proxy_headers=trusted_proxies != "",
        forwarded_allow_ips=trusted_proxies,
    )


def serve(config: uvicorn.Config, listener: socket.socket) -> None:
    """Serve on `listener` until a signal; exits with 3 if the app cannot start."""
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn has stopped in order and raises the signal again
        server.run(sockets=descriptors(listener))
    if not server.started:
        sys.exit(_EXIT_NOT_STARTED)
