"""The answers to several prompts of one request as one stream of events."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from service_kit.cancellation import cancel
from wire.answers import Delta, Finished
from wire.errors import ApiError, ErrorCode

AT_ONCE = 8  #: prompts that are answered at the same time; the others wait here and not in the worker's queue
WAITING_EVENTS = 64  #: that no one has read; then the answers wait for their reader
PATIENCE_S = 60.0  #: a prompt that finds no place waits so long while others of its request go on

Event = Delta | Finished
_PASSING = frozenset({ErrorCode.QUEUE_FULL, ErrorCode.RATE_LIMITED})


async def answers_of(
    makers: Sequence[Callable[[], AsyncGenerator[Event, None]]],
) -> AsyncGenerator[tuple[int, Event], None]:
    """The events of all answers, each with the number of its prompt. Raises the ApiError of the first that fails; then,
    and when it is closed, all others end."""
    if len(makers) == 1:
        async with aclosing(makers[0]()) as events:
            async for event in events:
                yield 0, event
        return
    queue: asyncio.Queue[tuple[int, Event] | BaseException] = asyncio.Queue(WAITING_EVENTS)
    gate = asyncio.Semaphore(AT_ONCE)
    tasks = [asyncio.create_task(_run(which, make, gate, queue)) for which, make in enumerate(makers)]
    try:
        num_open = len(makers)
        while num_open:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            num_open -= isinstance(item[1], Finished)
            yield item
    finally:
        await cancel(*tasks)


async def _run(
    which: int,
    make: Callable[[], AsyncGenerator[Event, None]],
    gate: asyncio.Semaphore,
    queue: "asyncio.Queue[tuple[int, Event] | BaseException]",
) -> None:
    async with gate:
        give_up_at = asyncio.get_running_loop().time() + (PATIENCE_S if which else 0.0)
        while True:
            has_begun = False
            try:
                async with aclosing(make()) as events:
                    async for event in events:
                        has_begun = True
                        await queue.put((which, event))
                return
            except ApiError as error:
                is_late = asyncio.get_running_loop().time() >= give_up_at
                if has_begun or is_late or error.code not in _PASSING:
                    await queue.put(error)
                    return
                await asyncio.sleep(min(error.retry_after_s or 1.0, 1.0))
            except Exception as error:
                await queue.put(error)
                return
