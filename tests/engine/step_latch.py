"""Steps of an AsyncEngine that happen when a test allows them, and ways to wait for its thread without a clock."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from engine.async_engine import AsyncEngine
from engine.batch import StepPlan
from tests.engine.fakes import PagedFakeRunner

PATIENCE_S = 30.0

T = TypeVar("T")
Launch = Callable[[StepPlan], None]


class StepLatch:
    """Lets a test decide when steps happen: each step waits for a permit; `open` gives all of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_permits = 0
        self._num_begun = 0
        self._is_open = False

    def allow(self, num_steps: int = 1) -> None:
        with self._changed:
            self._num_permits += num_steps
            self._changed.notify_all()

    def open(self) -> None:
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    async def begun(self, num_steps: int) -> None:
        """Wait until so many steps have begun; the last one may be waiting for its permit."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: self._num_begun >= num_steps, PATIENCE_S)

        assert await asyncio.to_thread(wait), f"{self._num_begun} of {num_steps} steps have begun"

    def hold(self, runner: PagedFakeRunner, launch: Launch | None = None) -> None:
        """Make the steps of a runner wait. launch: what they do then; its own, unless stated."""
        launch = launch or runner.launch

        def held(plan: StepPlan) -> None:
            with self._changed:
                self._num_begun += 1
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: self._is_open or self._num_permits > 0, PATIENCE_S)
                self._num_permits -= 1
            launch(plan)

        runner.launch = held  # type: ignore[method-assign]


async def begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that has run up to its first wait."""
    has_begun = asyncio.Event()

    async def run() -> T:
        has_begun.set()
        return await work

    task = asyncio.create_task(run())
    await has_begun.wait()
    return task


async def until(engine: AsyncEngine, condition: Callable[[], bool]) -> None:
    """Let the engine thread work until something holds: it shows its pool between two steps."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await engine.picture()
