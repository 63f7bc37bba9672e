"""A cache of leaderboards and workers for all visitors: one request to the controller a second, not one per visitor."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from webui import texts
from webui.client import ControllerClient
from wire.leaderboard import LeaderboardView
from wire.workers import WorkerPool, WorkerView

T = TypeVar("T")


class _Shared(Generic[T]):
    """The last answer of `fetch`, until it is `max_age_s` old. Concurrent callers share one request."""

    def __init__(self, fetch: Callable[[str], Awaitable[T]], max_age_s: float) -> None:
        self._fetch = fetch
        self._max_age_s = max_age_s
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._fetched_at = float("-inf")

    async def get(self, visitor: str) -> T:
        async with self._lock:
            if self._value is None or time.monotonic() - self._fetched_at > self._max_age_s:
                self._value = await self._fetch(visitor)
                self._fetched_at = time.monotonic()
            return self._value


class Boards:
    """Cached answers of the controller: one request for each board and `max_age_s`, however many visitors watch it."""

    def __init__(self, client: ControllerClient, *, max_age_s: float) -> None:
        self._leaderboards = {
            (board, style_control): _Shared(
                partial(client.leaderboard, board=board, style_control=style_control), max_age_s
            )
            for board in texts.BOARDS
            for style_control in (False, True)
        }
        self._client = client
        self._workers = _Shared(client.workers, max_age_s)

    async def leaderboard(
        self, visitor: str, board: str = "overall", *, style_control: bool = False
    ) -> LeaderboardView:
        """One leaderboard; `board` is a key of texts.BOARDS."""
        return await self._leaderboards[board, style_control].get(visitor)

    async def workers(self, visitor: str, admin_token: str = "") -> tuple[WorkerView, ...]:
        """Every registered worker. What the admin token shows is asked for each time and never kept: the next visitor
        must not get it."""
        return await (self._client.workers(visitor, admin_token) if admin_token else self._workers.get(visitor))

    async def pools(self, visitor: str, admin_token: str) -> tuple[WorkerPool, ...]:
        """The page pools of all workers that have one; asked for each time, as above."""
        return await self._client.pools(visitor, admin_token)
