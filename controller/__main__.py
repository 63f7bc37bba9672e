"""`python -m controller`: one controller process until SIGTERM or SIGINT."""

import argparse
import asyncio
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn
from pydantic import ValidationError

from controller.app import create_app, is_new_work
from controller.config import Settings
from controller.errors import ConfigurationError
from service_kit.heads import BoundedHttp
from service_kit.listening import descriptors, listen
from service_kit.logs import configure_logging
from service_kit.shedding import Shedding

LAST_WORDS_S = 3  #: for the last events of streams that are ended at a shutdown


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal. Returns the exit code: 0, or 2 for settings that cannot work."""
    parser = argparse.ArgumentParser(prog="python -m controller", description="The controller of an Agon arena.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    options = parser.parse_args(arguments)
    try:
        settings = Settings()
        app = create_app(settings, host=options.host)
    except ConfigurationError as error:
        print(f"controller: {error}", file=sys.stderr)
        return 2
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False):
            print(f"controller: AGON_{str(problem['loc'][0]).upper()}: {problem['msg']}", file=sys.stderr)
        return 2
    configure_logging(("controller", "uvicorn"), settings.log_level)
    # uvicorn shuts down gracefully and then raises the signal again. Ending on SIGTERM is not a failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        listener = listen(options.host, options.port)
    except OSError as error:
        print(f"controller: cannot listen on {options.host}:{options.port}: {error.strerror}.", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        Shedding(app, is_new_work),
        log_config=None,
        access_log=False,
        proxy_headers=False,  # addresses.py decides which proxies are trusted
        server_header=False,
        http=BoundedHttp,
        timeout_graceful_shutdown=round(settings.drain_s) + LAST_WORDS_S,
    )
    server = _Server(config, on_drained=app.state.end_streams, drain_s=settings.drain_s)
    server.run(sockets=descriptors(listener))
    return 0


class _Server(uvicorn.Server):
    """uvicorn that calls `on_drained` when a shutdown has waited `drain_s` for its streams, before it cuts them."""

    def __init__(self, config: uvicorn.Config, *, on_drained: Callable[[], None], drain_s: float) -> None:
        super().__init__(config)
        self._on_drained = on_drained
        self._drain_s = drain_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which waits for all responses to end."""
        timer = asyncio.get_running_loop().call_later(self._drain_s, self._on_drained)
        await super().shutdown(sockets)
        timer.cancel()


if __name__ == "__main__":
    sys.exit(main())
