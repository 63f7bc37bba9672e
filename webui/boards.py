"""A cache of leaderboards and workers for all visitors: one request to the controller a second, not one per visitor."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from webui.client import BoardQuery, ControllerClient
from webui.controllers import ControllerUnreachable
from webui.visitors import Visitor
from wire.errors import ApiError
from wire.leaderboard import CohortView, HistoryView, LeaderboardView
from wire.workers import WorkerPool, WorkerView

T = TypeVar("T")
K = TypeVar("K")

_MAX_KEPT = 64  #: answers of each kind; one of sixty models takes half a megabyte
_HISTORY_AGE_S = 60.0  #: a history changes once a day, apart from the present day
_COMPARED_AGE_S = 10.0  #: a comparison needs the fits of two boards
_PATIENCE_S = 1.0  #: for what a board can be shown without


class Shared(Generic[T]):
    """The last answer of `fetch`, until it is `max_age_s` old. Concurrent callers share one request."""

    def __init__(self, fetch: Callable[[Visitor], Awaitable[T]], max_age_s: float) -> None:
        self._fetch = fetch
        self._max_age_s = max_age_s
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._fetched_at = float("-inf")
        self._failed_at = float("-inf")

    async def get(self, visitor: Visitor) -> T:
        """The answer; asked for on behalf of `visitor` if it is too old. Raises what `fetch` raises."""
        async with self._lock:
            if self._value is None or time.monotonic() - self._fetched_at > self._max_age_s:
                self._value = await self._fetch(visitor)
                self._fetched_at = time.monotonic()
            return self._value

    async def known(self, visitor: Visitor) -> T | None:
        """As `get`; where that fails, or takes longer than _PATIENCE_S, what was known before. A slow request goes on;
        a failed one is not repeated for `max_age_s`."""
        if time.monotonic() - self._failed_at < self._max_age_s:
            return self._value
        try:
            return await asyncio.wait_for(asyncio.shield(self.get(visitor)), _PATIENCE_S)
        except TimeoutError:
            return self._value
        except (ApiError, ControllerUnreachable):
            self._failed_at = time.monotonic()
            return self._value


class _SharedByKey(Generic[K, T]):
    """A Shared for each key, the _MAX_KEPT that were asked for last."""

    def __init__(self, make: Callable[[K], Shared[T]]) -> None:
        self._make = make
        self._kept: OrderedDict[K, Shared[T]] = OrderedDict()

    def of(self, key: K) -> Shared[T]:
        """The shared answer for a key."""
        if key not in self._kept:
            self._kept[key] = self._make(key)
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


class Boards:
    """Cached answers of the controller: one request for each board and `max_age_s`, however many visitors watch it."""

    def __init__(self, client: ControllerClient, *, max_age_s: float) -> None:
        self._client = client
        self._leaderboards: _SharedByKey[BoardQuery, LeaderboardView] = _SharedByKey(
            lambda query: Shared(partial(client.leaderboard, query=query), max_age_s)
        )
        self._histories: _SharedByKey[str, HistoryView] = _SharedByKey(
            lambda board: Shared(partial(client.history, board=board), max(max_age_s, _HISTORY_AGE_S))
        )
        self._comparisons: _SharedByKey[tuple[str, str], CohortView] = _SharedByKey(
            lambda pair: Shared(partial(client.cohorts, first=pair[0], second=pair[1]), max(max_age_s, _COMPARED_AGE_S))
        )
        self._workers = Shared(client.workers, max_age_s)

    async def leaderboard(self, visitor: Visitor, query: BoardQuery | None = None) -> LeaderboardView:
        """One leaderboard, by default that of all rated votes."""
        return await self._leaderboards.of(query or BoardQuery()).get(visitor)

    async def history(self, visitor: Visitor, board: str) -> HistoryView | None:
        """A board by days; None where the controller has none or is slow to answer: the page works without it."""
        return await self._histories.of(board).known(visitor)

    async def comparison(self, visitor: Visitor, first: str, second: str) -> CohortView | None:
        """Two boards beside each other; None as for `history`."""
        return await self._comparisons.of((first, second)).known(visitor)

    async def workers(self, visitor: Visitor, admin_token: str = "") -> tuple[WorkerView, ...]:
        """Every registered worker. What the admin token shows is asked for each time and never kept: the next visitor
        must not get it."""
        return await (self._client.workers(visitor, admin_token) if admin_token else self._workers.get(visitor))

    async def pools(self, visitor: Visitor, admin_token: str) -> tuple[WorkerPool, ...]:
        """The page pools of all workers that have one; asked for each time, as above."""
        return await self._client.pools(visitor, admin_token)
