"""Ending background tasks for certain.

Python 3.11's asyncio.wait_for, through which redis-py sends, swallows a cancellation that arrives in the moment its
inner future completes. A task that loops then goes on as if nothing had been said, so it is told again until it has
ended.
"""

import asyncio
from typing import Any

AGAIN_S = 0.25


async def cancel(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel `tasks` and wait until they have cleaned up. What they failed with is for whoever else waited for them."""
    ending = [task for task in tasks if task is not None]
    pending = {task for task in ending if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
    for task in ending:
        if not task.cancelled():
            task.exception()  # retrieved, so that nobody is warned of it
