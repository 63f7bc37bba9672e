"""A small arena for one test: controllers over the store, fake workers, and a visitor's HTTP client."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx
from fastapi import FastAPI
from redis.asyncio import Redis

from controller.app import create_app
from controller.config import Settings
from controller.store.keys import Keys
from tests.api_page import only_declared_errors
from tests.controller.support.fake_worker import FakeWorker
from tests.controller.support.running import running_app
from wire.proxies import PROXY_TOKEN_HEADER
from wire.sse import SseDecoder, SseEvent
from wire.trails import TrailView

WORKER_TOKEN = "worker-token-for-tests"
ADMIN_TOKEN = "admin-token-for-tests"
PROXY_TOKEN = "proxy-token-for-tests"


def visitor(address: str) -> dict[str, str]:
    """Headers with which the web UI asks for the visitor of this address."""
    return {"X-Forwarded-For": address, PROXY_TOKEN_HEADER: PROXY_TOKEN}


def make_settings(redis_url: str, prefix: str, **changes: Any) -> Settings:
    """Settings with short refreshes, long time limits and no rate limit worth the name; `changes` override them."""
    values: dict[str, Any] = {
        "redis_url": redis_url,
        "key_prefix": prefix,
        "worker_token": WORKER_TOKEN,
        "admin_token": ADMIN_TOKEN,
        "table_refresh_s": 0.05,
        "heartbeat_s": 0.2,
        "worker_lease_s": 20.0,  # a busy machine must not look like a dead worker or controller
        "owner_lease_s": 20.0,
        "replay_wait_s": 0.0,
        "flush_s": 0.02,
        "paced": 0.0,  # tests of the pace set it
        "admission_wait_s": 20.0,
        "store_timeout_s": 5.0,
        "board_refresh_s": 0.0,
        "local_rate_per_minute": 600_000,
        "local_rate_burst": 10_000,
        "vote_rate_per_minute": 600_000,
        "vote_rate_burst": 10_000,
        "min_read_s": 0.0,  # tests vote at once
        "judge_every_s": 0.0,  # and often, on one prompt
        "proxy_token": PROXY_TOKEN,
    }
    return Settings(**{**values, **changes})


@dataclass
class Arena:
    """One controller, its store, and what a test adds; `client` is a visitor's."""

    settings: Settings
    url: str
    client: httpx.AsyncClient
    redis: Redis
    _stack: contextlib.AsyncExitStack
    workers: list[FakeWorker] = field(default_factory=list)

    @property
    def keys(self) -> Keys:
        """Names of the arena's keys in `redis`."""
        return Keys(self.settings.key_prefix)

    @property
    def admin(self) -> dict[str, str]:
        """Headers of the administrator."""
        return {"Authorization": f"Bearer {ADMIN_TOKEN}"}

    async def add_worker(self, worker: FakeWorker) -> FakeWorker:
        """Serve `worker` and register it; it is known when this returns."""
        await self._stack.enter_async_context(worker.running(self.url, WORKER_TOKEN))
        self.workers.append(worker)
        return worker

    async def add_two(self, **options: Any) -> tuple[FakeWorker, FakeWorker]:
        """Workers of the models alpha and beta."""
        return (
            await self.add_worker(FakeWorker("alpha", **options)),
            await self.add_worker(FakeWorker("beta", **options)),
        )

    async def remove(self, worker: FakeWorker) -> None:
        """Take the worker off the registry for good."""
        worker.is_beating = False
        headers = {"Authorization": f"Bearer {WORKER_TOKEN}"}
        await self.client.delete(f"/internal/workers/{worker.worker_id}", headers=headers)

    async def add_controller(self, **changes: Any) -> httpx.AsyncClient:
        """Start another controller over the same store. Returns a client of it."""
        app = create_app(self.settings.model_copy(update=changes))
        url = await self._stack.enter_async_context(running_app(app))
        return await self._stack.enter_async_context(_client(url, app))

    async def create(self, *models: str, client: httpx.AsyncClient | None = None, **options: Any) -> dict[str, Any]:
        """The view of a new battle, between `models` or between drawn ones."""
        body = {"mode": "named", "models": models, **options} if models else {"mode": "anonymous"}
        response = await (client or self.client).post("/arena/battles", json=body)
        assert response.status_code == 201, response.text
        return response.json()

    async def trail(self, battle_id: str) -> TrailView:
        """Its steps, for the administrator."""
        response = await self.client.get(f"/arena/admin/trails/{battle_id}", headers=self.admin)
        assert response.status_code == 200, response.text
        return TrailView.model_validate_json(response.content)

    async def has_ended(self, battle_id: str, result: str = "finished") -> bool:
        """Whether a turn has ended so. It is noted when the end is written; a reader may have seen that already."""
        entries = (await self.trail(battle_id)).entries
        return any(entry.step == "ended" and entry.reason == result for entry in entries)

    async def turn(self, battle_id: str, content: str = "hello", **kwargs: Any) -> list[SseEvent]:
        """All events of a new turn."""
        return await self.events("POST", f"/arena/battles/{battle_id}/turns", json={"content": content}, **kwargs)

    async def post_turn(self, battle_id: str, content: Any = "hello") -> httpx.Response:
        """The response when the turn is over, or at once when it is refused."""
        return await self.client.post(f"/arena/battles/{battle_id}/turns", json={"content": content})

    async def events(
        self, method: str, path: str, *, client: httpx.AsyncClient | None = None, **kwargs: Any
    ) -> list[SseEvent]:
        """All events of a stream that must begin with 200."""
        return [event async for event in self.streamed(method, path, client=client, **kwargs)]

    async def streamed(
        self, method: str, path: str, *, client: httpx.AsyncClient | None = None, **kwargs: Any
    ) -> AsyncGenerator[SseEvent, None]:
        """The same events as they come."""
        async with (client or self.client).stream(method, path, **kwargs) as response:
            if response.status_code != 200:
                await response.aread()
            assert response.status_code == 200, response.text
            decoder = SseDecoder()
            async for part in response.aiter_raw():
                for event in decoder.feed(part):
                    yield event

    async def vote(self, battle_id: str, outcome: str = "a", **kwargs: Any) -> httpx.Response:
        """The response to a vote."""
        return await self.client.post(f"/arena/battles/{battle_id}/vote", json={"outcome": outcome}, **kwargs)

    async def view(self, battle_id: str) -> dict[str, Any]:
        """The battle as a client sees it."""
        response = await self.client.get(f"/arena/battles/{battle_id}")
        assert response.status_code == 200, response.text
        return response.json()

    async def vote_log(self) -> list[dict[str, Any]]:
        """All records of the vote log, oldest first."""
        response = await self.client.get("/arena/votes", headers=self.admin)
        assert response.status_code == 200, response.text
        return [json.loads(line) for line in response.text.splitlines()]

    async def num_leases(self) -> int:
        """Capacity leases in the store, at all workers."""
        total = 0
        async for key in self.redis.scan_iter(match=self.keys.leases_prefix + "*"):
            total += await self.redis.zcard(key)
        return total

    async def take_place(self, leases: str) -> None:
        """Add the lease of another controller, which ends after 20 s, to the key `leases`."""
        seconds, _ = await self.redis.time()
        await self.redis.zadd(leases, {"another request": (int(seconds) + 20) * 1000})

    async def has_no_leases(self) -> bool:
        """For `eventually`."""
        return await self.num_leases() == 0


async def eventually(check: Callable[[], Awaitable[bool]] | Callable[[], bool], timeout_s: float = 30) -> None:
    """Wait until `check` holds; fail the test when that takes longer than `timeout_s`."""
    give_up_at = time.monotonic() + timeout_s
    while True:
        holds = check()
        if not isinstance(holds, bool):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < give_up_at, "it did not come true"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running_arena(settings: Settings) -> AsyncGenerator[Arena, None]:
    """An arena with one controller and no worker, until the block ends."""
    async with contextlib.AsyncExitStack() as stack:
        redis = Redis.from_url(_as_default_user(settings.redis_url), decode_responses=True)
        stack.push_async_callback(redis.aclose)
        app = create_app(settings)
        url = await stack.enter_async_context(running_app(app))
        client = await stack.enter_async_context(_client(url, app))
        yield Arena(settings, url, client, redis, stack)


def _as_default_user(url: str) -> str:
    """The same store for the test itself, which looks at more than a controller may. With Sentinel: none."""
    scheme, _, rest = url.partition("://")
    return "redis://127.0.0.1:1" if "sentinel" in scheme else f"{scheme}://{rest.rpartition('@')[2]}"


def _client(url: str, app: FastAPI) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, keepalive_expiry=1.0)  # the server closes after five seconds
    # Without TLS: loading the certificates of all authorities takes longer than most tests.
    hooks = {"response": [only_declared_errors(app)]}
    return httpx.AsyncClient(
        base_url=url,
        timeout=30,
        trust_env=False,
        limits=limits,
        verify=False,
        event_hooks=hooks,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # like curl; one client acts for many visitors
    )


def of_kind(events: list[SseEvent], name: str) -> list[SseEvent]:
    """The events with this name."""
    return [event for event in events if event.event == name]


def end_state(events: list[SseEvent]) -> str:
    """The state of the battle after a turn with these events."""
    [last] = of_kind(events, "turn_finished")
    return str(json.loads(last.data)["state"])
