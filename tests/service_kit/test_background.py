"""Background work goes on after every failure, and the service knows while it fails."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from service_kit import background
from service_kit.background import BackgroundTasks, Round


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 0.001)


@asynccontextmanager
async def _running(work: Round) -> AsyncGenerator[BackgroundTasks, None]:
    tasks = BackgroundTasks()
    tasks.add("work", work, every_s=0.001)
    tasks.start()
    try:
        yield tasks
    finally:
        await tasks.stop()


class _Work:
    """Fails in the rounds before number `good_from`, with the kind of error that uvloop raises for a lost socket."""

    def __init__(self, good_from: int) -> None:
        self.good_from = good_from
        self.num_rounds = 0

    async def round(self) -> None:
        self.num_rounds += 1
        if self.num_rounds < self.good_from:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>")


async def test_a_round_that_raises_is_repeated_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    work = _Work(good_from=4)
    async with asyncio.timeout(10), _running(work.round) as tasks:
        while work.num_rounds < 6:
            assert tasks.failing == (("work",) if 1 <= work.num_rounds < 4 else ())
            await asyncio.sleep(0)
        assert tasks.failing == ()

    failures = [record for record in caplog.records if record.getMessage() == "background_work_failed"]
    assert [record.levelno for record in failures] == [logging.ERROR] * 3


async def test_a_round_that_waited_for_what_was_cancelled_is_repeated() -> None:
    """A future of an executor that is shut down, or a task that another one cancels: not the end of this work."""
    num_rounds = 0

    async def round_() -> None:
        nonlocal num_rounds
        num_rounds += 1
        if num_rounds < 3:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    async with asyncio.timeout(10), _running(round_) as tasks:
        while num_rounds < 5:
            assert tasks.failing == (("work",) if 1 <= num_rounds < 3 else ())
            await asyncio.sleep(0)
        assert tasks.failing == ()


async def test_a_task_that_was_cancelled_from_outside_counts_as_failing() -> None:
    started = asyncio.Event()

    async def round_() -> None:
        started.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(10), _running(round_) as tasks:
        await started.wait()
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == "work"]
        task.cancel()
        await asyncio.wait([task])
        assert tasks.failing == ("work",)


def test_pauses_after_failures_grow_up_to_a_ceiling() -> None:
    longest = max(background._pause_s(0.1, failures) for failures in range(1, 2000))
    assert longest <= background.LONGEST_PAUSE_S * (1 + background.JITTER)
    assert background._pause_s(0.1, 0) <= 0.1 * (1 + background.JITTER)


def test_names_are_unique() -> None:
    tasks = BackgroundTasks()
    tasks.add("work", _Work(0).round, every_s=1)
    with pytest.raises(ValueError):
        tasks.add("work", _Work(0).round, every_s=1)
