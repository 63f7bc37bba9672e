"""Cancelling background tasks so that they really end.

Python 3.11's asyncio.wait_for, through which redis-py sends, swallows a cancellation that arrives at the moment its
inner future completes. A task with a loop then goes on as if it had not been cancelled, so it is cancelled again until
it has ended.
"""

import asyncio
from typing import Any

AGAIN_S = 0.25


async def cancel(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel `tasks` and wait until they have ended. Their exceptions are dropped: await a task to get its own."""
    ending = [task for task in tasks if task is not None]
    pending = {task for task in ending if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
    for task in ending:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn of it
