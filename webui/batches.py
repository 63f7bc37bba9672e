"""Events of a stream, gathered for a short time, so that a page is updated about ten times a second."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def batches(events: AsyncGenerator[T, None], interval_s: float) -> AsyncGenerator[list[T], None]:
    """All events that arrived during one interval, as a list; the first event is passed on without waiting."""
    queue: asyncio.Queue[T | Exception | None] = asyncio.Queue()

    async def read() -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    queue.put_nowait(event)
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)

    reader = asyncio.create_task(read())
    try:
        while True:
            arrived = [await queue.get()]
            while not queue.empty():
                arrived.append(queue.get_nowait())
            end = arrived[-1]
            batch = [item for item in arrived if item is not None and not isinstance(item, Exception)]
            if batch:
                yield batch
            if isinstance(end, Exception):
                raise end
            if end is None:
                return
            await asyncio.sleep(interval_s)
    finally:
        reader.cancel()
        await asyncio.wait([reader])
