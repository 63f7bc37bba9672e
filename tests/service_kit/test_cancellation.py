import asyncio

from service_kit.cancellation import cancel


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    num_cancellations = 0
    has_begun = asyncio.Event()

    async def stubborn() -> None:
        nonlocal num_cancellations
        while num_cancellations < 2:
            has_begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                num_cancellations += 1

    task = asyncio.create_task(stubborn())
    await has_begun.wait()
    await cancel(task)
    assert task.done()
    assert num_cancellations == 2


async def test_what_has_ended_or_never_began_may_be_cancelled_too() -> None:
    async def fails() -> None:
        raise RuntimeError("bug")

    task = asyncio.create_task(fails())
    await asyncio.wait([task])
    await cancel(task, None)
    assert isinstance(task.exception(), RuntimeError)
