"""Capacity leases and the choice of a worker, against a real store."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from controller.access.addresses import ClientAddress
from controller.access.rate_limits import Rate, RateLimiter, Rates
from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store
from controller.store_address import parse_address
from controller.workers.breaker import FAILURES_TO_OPEN, CircuitBreaker
from controller.workers.congestion import FULL_S
from controller.workers.dispatch import Dispatcher, Lane, Wish
from controller.workers.registry import WorkerRegistry
from controller.workers.routing_table import RoutingTable
from controller.workers.worker_hosts import WorkerHosts
from service_kit.background import BackgroundTasks
from tests.controller.support.arena import eventually
from tests.controller.support.running import StoreProcess
from wire.errors import ApiError, ErrorCode
from wire.ids import WorkerId
from wire.releases import RELEASE
from wire.workers import Capacity, ModelCard, RegisterRequest


class _Parts:
    def __init__(self, url: str, lease_s: float) -> None:
        self.keys = Keys(f"test:{secrets.token_hex(6)}")
        metrics = Metrics()
        self.store = Store(parse_address(url), timeout_s=10, metrics=metrics)
        self.table = RoutingTable(self.store, self.keys)
        self.breaker = CircuitBreaker()
        self.dispatcher = Dispatcher(self.store, self.keys, self.table, self.breaker, lease_s=lease_s)
        rate = Rate(per_minute=1, burst=2)
        self.limits = RateLimiter(self.store, self.keys, metrics, Rates(rate, rate, rate, rate), lambda _: None)
        self.registry = WorkerRegistry(
            self.store, self.keys, self.table, WorkerHosts(["127.0.0.0/8"]), heartbeat_s=1, lease_s=60
        )

    async def add(self, model: str, port: int, max_running: int) -> WorkerId:
        card = ModelCard(name=model, revision="r", architecture="x", num_parameters=1, dtype="f", context_length=9)
        capacity = Capacity(max_running=max_running, max_queued=0, kv_tokens=1)
        request = RegisterRequest(
            boot_id=f"boot-{port:05}",
            url=f"http://127.0.0.1:{port}",
            card=card,
            capacity=capacity,
            version=RELEASE,
        )
        return (await self.registry.register(request)).worker_id

    async def num_leases(self, worker_id: WorkerId) -> int:
        return int(await self.store.redis.zcard(self.keys.leases(worker_id)))

    async def end_of_lease(self, worker_id: WorkerId) -> float:
        """When the only lease at the worker ends, in milliseconds of the store's clock."""
        found: Any = await self.store.redis.zrange(self.keys.leases(worker_id), 0, -1, withscores=True)
        [(_, end_ms)] = found
        return float(end_ms)


@asynccontextmanager
async def _parts(store: StoreProcess, lease_s: float = 15) -> AsyncGenerator[_Parts, None]:
    parts = _Parts(store.url, lease_s)
    background = BackgroundTasks()
    background.add("leases", parts.dispatcher.renew_leases, every_s=parts.dispatcher.renewal_s)
    background.start()
    try:
        yield parts
    finally:
        await background.stop()
        await parts.dispatcher.close()
        await parts.store.close()


async def test_both_sides_get_leases_or_neither(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        free, full = await parts.add("x", 1, 5), await parts.add("y", 2, 1)
        [taken] = await parts.dispatcher.reserve([Wish("y")], "chat")

        with pytest.raises(ApiError) as refusal:
            await parts.dispatcher.reserve([Wish("x"), Wish("y")], "chat")

        assert refusal.value.code is ErrorCode.QUEUE_FULL
        assert refusal.value.retry_after_s
        assert await parts.num_leases(free) == 0
        await taken.close()
        lanes = await parts.dispatcher.reserve([Wish("x"), Wish("y")], "chat")
        assert [await parts.num_leases(worker) for worker in (free, full)] == [1, 1]
        for lane in lanes:
            await lane.close()
        assert [await parts.num_leases(worker) for worker in (free, full)] == [0, 0]


async def test_a_request_that_comes_too_often_takes_no_lease(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        worker = await parts.add("x", 1, 5)
        charge = parts.limits.charge(ClientAddress("203.0.113.1", is_local=False), "completion")
        for _ in range(2):
            await parts.dispatcher.reserve([Wish("x")], "chat", charge)

        with pytest.raises(ApiError) as refusal:
            await parts.dispatcher.reserve([Wish("x")], "chat", charge)

        assert refusal.value.code is ErrorCode.RATE_LIMITED
        assert 30 <= (refusal.value.retry_after_s or 0) <= 60
        assert await parts.num_leases(worker) == 2


async def test_a_request_is_charged_once_however_many_workers_are_full(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        full, free = await parts.add("x", 1, 1), await parts.add("x", 2, 5)
        until_ms = (int((await parts.store.redis.time())[0]) + 10) * 1000
        await parts.store.redis.zadd(parts.keys.leases(full), {"another controller's": until_ms})
        charge = parts.limits.charge(ClientAddress("203.0.113.1", is_local=False), "completion")

        for _ in range(2):  # as many as the bucket has places; each asks the full one first
            [lane] = await parts.dispatcher.reserve([Wish("x", preferred=full)], "chat", charge)
            assert lane.worker.worker_id == free


async def test_concurrent_reservations_never_exceed_the_limit(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        worker = await parts.add("x", 1, 7)

        results = await asyncio.gather(
            *(parts.dispatcher.reserve([Wish("x")], "chat") for _ in range(30)), return_exceptions=True
        )

        assert sum(isinstance(result, list) for result in results) == 7
        assert await parts.num_leases(worker) == 7


async def test_a_full_worker_is_swapped_for_another(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        for port in (1, 2, 3):
            await parts.add("x", port, 2)

        lanes = [lane for _ in range(6) for lane in await parts.dispatcher.reserve([Wish("x")], "chat")]

        assert Counter(Counter(lane.worker.worker_id for lane in lanes).values()) == {2: 3}


async def test_requests_spread_over_equal_workers(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        for port in (1, 2, 3, 4):
            await parts.add("x", port, 100)

        lanes = [lane for _ in range(40) for lane in await parts.dispatcher.reserve([Wish("x")], "chat")]

        assert max(Counter(lane.worker.worker_id for lane in lanes).values()) <= 14


async def test_a_conversation_stays_at_its_worker_unless_that_is_much_fuller(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        home = await parts.add("x", 1, 4)
        await parts.add("x", 2, 4)
        wish = Wish("x", preferred=home)

        first = [(await parts.dispatcher.reserve([wish], "chat"))[0].worker.worker_id for _ in range(2)]
        while len(first) < 8:
            first.append((await parts.dispatcher.reserve([wish], "chat"))[0].worker.worker_id)

        assert first[:2] == [home, home]
        assert first.count(home) == 4


async def test_a_crashed_controllers_leases_run_out(shared_store: StoreProcess) -> None:
    crashed = _Parts(shared_store.url, lease_s=15)  # renews nothing, releases nothing
    async with AsyncExitStack() as stack:
        stack.push_async_callback(crashed.store.close)
        worker = await crashed.add("x", 1, 1)
        [lost] = await crashed.dispatcher.reserve([Wish("x")], "chat")
        with pytest.raises(ApiError):
            await crashed.dispatcher.reserve([Wish("x")], "chat")
        seconds, microseconds = await crashed.store.redis.time()
        assert 0 < await crashed.end_of_lease(worker) - (seconds * 1000 + microseconds / 1000) <= 15_000

        await crashed.store.redis.zadd(crashed.keys.leases(worker), {lost.lease.lease_id: 1})  # its end has passed
        await asyncio.sleep(FULL_S)  # for so long the controller takes the store's word that the worker is full

        [lane] = await crashed.dispatcher.reserve([Wish("x")], "chat")
        assert lane.worker.worker_id == worker


async def test_leases_that_are_held_are_renewed(shared_store: StoreProcess) -> None:
    async with _parts(shared_store, lease_s=3) as parts:
        worker = await parts.add("x", 1, 1)
        await parts.dispatcher.reserve([Wish("x")], "chat")
        first_end = await parts.end_of_lease(worker)

        async def is_renewed() -> bool:
            return await parts.end_of_lease(worker) > first_end

        await eventually(is_renewed)
        with pytest.raises(ApiError):
            await parts.dispatcher.reserve([Wish("x")], "chat")


async def test_a_cancelled_reservation_leaves_no_lease(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        worker = await parts.add("x", 1, 100)
        tasks = [asyncio.create_task(parts.dispatcher.reserve([Wish("x")], "chat")) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        async def is_even() -> bool:
            return await parts.num_leases(worker) == parts.dispatcher.num_held

        await eventually(is_even)


async def test_a_lane_moves_to_another_replica_and_frees_the_first(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        one, two = await parts.add("x", 1, 1), await parts.add("x", 2, 1)
        [lane] = await parts.dispatcher.reserve([Wish("x", preferred=one)], "chat")

        await lane.move(frozenset({(one, lane.worker.epoch)}))

        assert lane.worker.worker_id == two
        assert [await parts.num_leases(worker) for worker in (one, two)] == [0, 1]


async def test_workers_behind_an_open_circuit_get_nothing(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        await parts.add("x", 1, 1)
        [worker] = parts.table.ready("x")
        for _ in range(FAILURES_TO_OPEN):
            parts.breaker.failed((worker.worker_id, worker.epoch))

        with pytest.raises(ApiError) as refusal:
            await parts.dispatcher.reserve([Wish("x")], "chat")

        assert refusal.value.code is ErrorCode.NO_WORKER


async def test_an_unknown_model_is_told_from_one_whose_workers_are_away(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        worker = await parts.add("x", 1, 1)
        await parts.registry.leave(worker, None)

        codes = []
        for model in ("x", "never-seen"):
            with pytest.raises(ApiError) as refusal:
                await parts.dispatcher.reserve([Wish(model)], "chat")
            codes.append(refusal.value.code)

        assert codes == [ErrorCode.NO_WORKER, ErrorCode.MODEL_NOT_FOUND]


async def test_battles_get_half_of_the_places_while_both_kinds_are_refused(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        for number, model in enumerate(("x", "y"), 1):
            await parts.add(model, number, 8)
        pair = [Wish("x"), Wish("y")]
        chats = [lane for model in ("x", "y") for _ in range(8) for lane in await _chat(parts, model)]
        assert len(chats) == 16, "one kind alone may take every place"
        with pytest.raises(ApiError):
            await parts.dispatcher.reserve(pair, "battle")

        battles = 0
        for lane in chats:  # a place becomes free; both kinds want it, and chats are faster
            await lane.close()
            chats += await _chat(parts, lane.worker.card.name)
            try:
                await parts.dispatcher.reserve(pair, "battle")
                battles += 1
            except ApiError:
                await asyncio.sleep(FULL_S)
            if battles == 4 or len(chats) > 60:
                break

        assert battles == 4


async def test_a_kind_may_use_every_place_again_when_the_other_asks_no_more(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        worker = await parts.add("x", 1, 4)
        await parts.store.redis.set(parts.keys.demand(worker, "battle"), "1", px=60_000)
        assert [len(await _chat(parts, "x")) for _ in range(4)] == [1, 1, 0, 0]
        await parts.store.redis.delete(parts.keys.demand(worker, "battle"))  # its time is over
        await asyncio.sleep(FULL_S)
        assert [len(await _chat(parts, "x")) for _ in range(4)] == [1, 1, 0, 0]


async def test_a_refusal_for_lack_of_room_makes_room(shared_store: StoreProcess) -> None:
    async with _parts(shared_store) as parts:
        worker = await parts.add("x", 1, 4)
        assert parts.dispatcher.refused_for_room(["x"], "battle") >= 1
        await parts.dispatcher.close()
        assert await parts.store.redis.get(parts.keys.demand(worker, "battle")) == "1"
        assert [len(await _chat(parts, "x")) for _ in range(4)] == [1, 1, 0, 0]


async def _chat(parts: _Parts, model: str) -> list[Lane]:
    """The lane of a chat; none when it was refused."""
    try:
        return await parts.dispatcher.reserve([Wish(model)], "chat")
    except ApiError as error:
        if error.code is not ErrorCode.QUEUE_FULL:
            raise
        return []
