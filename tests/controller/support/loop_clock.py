"""The clock of the running event loop under a test's control, so that no test waits for a time limit."""

import asyncio


class LoopClock:
    """From now on the time of the running loop: the real one, until it is put forward. Ends with the loop, and each
    test has a loop of its own."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._real_time = loop.time
        self._ahead_s = 0.0
        loop.time = lambda: self._real_time() + self._ahead_s  # type: ignore[method-assign]

    async def advance(self, seconds: float) -> None:
        """Put the clock forward; returns when every timer that is due by then has run."""
        self._ahead_s += seconds
        for _ in range(3):
            await asyncio.sleep(0)
