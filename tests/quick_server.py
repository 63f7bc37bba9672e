"""A uvicorn server for tests that stops at once.

uvicorn checks ten times a second if it should stop and then always waits for another tenth of a second: tests with
several servers each spent half of their time there.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

_POLL_S = 0.005
_FORCED_S = 0.1  #: time for connections and tasks to end with `force_exit`


class QuickServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The test process keeps its own signal handlers."""
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)  # the headers that every answer has
        while not self.should_exit:
            await asyncio.sleep(_POLL_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        patience_s = _FORCED_S if self.force_exit else self.config.timeout_graceful_shutdown
        try:
            async with asyncio.timeout(patience_s):
                while state.connections or state.tasks:
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            for task in () if self.force_exit else state.tasks:
                task.cancel()
        if not self.force_exit:
            await self.lifespan.shutdown()
