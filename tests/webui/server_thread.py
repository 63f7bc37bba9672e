"""An ASGI app as a server in a thread of this process."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import uvicorn

from service_kit.heads import BoundedHttp
from tests.quick_server import QuickServer


class ServerThread:
    """An ASGI app on a free port, in its own thread. The app is made inside the thread's event loop, because without a
    running loop Gradio opens loops and never closes them."""

    def __init__(self, make_app: Callable[[], Any], *, http: type[BoundedHttp] = BoundedHttp) -> None:
        self._make_app = make_app
        self._http = http
        self._server: QuickServer | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        config = uvicorn.Config(
            self._make_app(),
            host="127.0.0.1",
            port=0,
            http=self._http,
            log_level="warning",
            timeout_graceful_shutdown=1,
        )
        self._server = QuickServer(config)
        await self._server.serve()

    def __enter__(self) -> str:
        self._thread.start()
        while self._server is None or not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the server did not start")
            time.sleep(0.02)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(timeout=10)
