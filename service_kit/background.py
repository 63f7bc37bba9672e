"""The background work of a service: functions that are called again and again until the service stops.

A round that raises is logged and repeated after a pause, so no background work ends while the service runs. Until a
round has succeeded again the work counts as failing: the service's `/ready` answers 503, so that a balancer or the
supervisor sees it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from service_kit.cancellation import cancel
from service_kit.logs import log_event

FIRST_PAUSE_S = 0.25  #: after the first failed round; doubles with every further one
LONGEST_PAUSE_S = 5.0
JITTER = 0.2  #: share by which pauses vary, so that the replicas of a service spread out

Round = Callable[[], Awaitable[None]]

_logger = logging.getLogger(__name__)


class BackgroundTasks:
    """Owns the background tasks of one service. Runs on its event loop."""

    def __init__(self) -> None:
        self._rounds: dict[str, tuple[Round, float]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._failing: set[str] = set()

    def add(self, name: str, work: Round, *, every_s: float) -> None:
        """Call `work` at the start and then `every_s` seconds after each round. Only before `start`.

        A round handles the failures that it expects, such as a store that is away; what it raises is a defect.
        """
        if name in self._rounds:
            raise ValueError(f"there is background work named {name!r} already")
        self._rounds[name] = (work, every_s)

    def start(self) -> None:
        """Begin the first rounds; they have not happened when this returns."""
        self._tasks = [
            asyncio.create_task(self._repeat(name, work, every_s), name=name)
            for name, (work, every_s) in self._rounds.items()
        ]

    async def stop(self) -> None:
        """Cancel the rounds under way and wait for their end."""
        await cancel(*self._tasks)

    @property
    def failing(self) -> tuple[str, ...]:
        """Names of the work whose last round raised, and of tasks that have ended or not begun, sorted."""
        if not self._tasks:
            return tuple(sorted(self._rounds))
        ended = {task.get_name() for task in self._tasks if task.done()}
        return tuple(sorted(self._failing | ended))

    async def _repeat(self, name: str, work: Round, every_s: float) -> None:
        num_failures = 0
        while True:
            try:
                await work()
                if num_failures:
                    log_event(_logger, "background_work_back", work=name, failures=num_failures)
                num_failures = 0
                self._failing.discard(name)
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                    raise
                # A defect, a library's error that nothing maps, or the end of what it waited for: the work must go on.
                num_failures += 1
                self._failing.add(name)
                log_event(_logger, "background_work_failed", logging.ERROR, exc_info=error, work=name)
            await asyncio.sleep(_pause_s(every_s, num_failures))


def _pause_s(every_s: float, num_failures: int) -> float:
    if num_failures:
        every_s = max(every_s, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(num_failures - 1, 10)))
    return every_s * random.uniform(1 - JITTER, 1 + JITTER)
