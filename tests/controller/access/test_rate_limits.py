import asyncio
from typing import Any

from tests.controller.support.arena import Arena, visitor
from tests.controller.support.fake_worker import FakeWorker


async def _create(arena: Arena, address: str, count: int) -> list[int]:
    body = {"mode": "named", "models": ["alpha", "beta"]}
    headers = visitor(address)
    return [(await arena.client.post("/arena/battles", json=body, headers=headers)).status_code for _ in range(count)]


async def test_an_address_that_asks_too_often_waits_and_others_do_not(open_arena: Any) -> None:
    async with open_arena(battle_rate_per_minute=1, battle_rate_burst=3) as arena:
        for model in ("alpha", "beta"):
            await arena.add_worker(FakeWorker(model))

        assert await _create(arena, "203.0.113.1", 5) == [201, 201, 201, 429, 429]
        assert await _create(arena, "203.0.113.2", 1) == [201]
        assert await _create(arena, "2001:db8::1", 3) == [201] * 3
        assert await _create(arena, "2001:db8::2", 1) == [429]  # the same /64


async def test_a_refused_client_reads_when_to_come_back(open_arena: Any) -> None:
    async with open_arena(battle_rate_per_minute=1, battle_rate_burst=1) as arena:
        await _create(arena, "203.0.113.1", 1)

        response = await arena.client.post("/arena/battles", json={"mode": "anonymous"}, headers=visitor("203.0.113.1"))

        assert (response.status_code, response.json()["error"]["type"]) == (429, "rate_limit_error")
        assert 30 <= int(response.headers["retry-after"]) <= 60


async def test_completions_have_a_bucket_too_and_one_that_names_no_model_costs_nothing(open_arena: Any) -> None:
    async with open_arena(rate_per_minute=1, rate_burst=2) as arena:
        await arena.add_worker(FakeWorker("alpha"))

        async def status(model: str) -> int:
            body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
            headers = visitor("203.0.113.1")
            return (await arena.client.post("/v1/chat/completions", json=body, headers=headers)).status_code

        assert [await status(model) for model in ("gone", "gone", "gone", "alpha", "alpha", "alpha")] == [
            *(404, 404, 404),
            *(200, 200, 429),
        ]


async def test_limits_are_shared_by_all_controllers(open_arena: Any) -> None:
    async with open_arena(battle_rate_per_minute=1, battle_rate_burst=2) as arena:
        for model in ("alpha", "beta"):
            await arena.add_worker(FakeWorker(model))
        other = await arena.add_controller()
        await _create(arena, "203.0.113.1", 2)

        response = await other.post("/arena/battles", json={"mode": "anonymous"}, headers=visitor("203.0.113.1"))

        assert response.status_code == 429


async def test_buckets_leave_nothing_behind(open_arena: Any) -> None:
    async with open_arena(battle_rate_per_minute=60_000, battle_rate_burst=3) as arena:
        await _create(arena, "203.0.113.1", 1)
        key = arena.keys.rate("battle", "203.0.113.1")

        assert await arena.redis.pttl(key) < 100


async def test_a_clock_that_was_set_back_refuses_for_no_longer_than_a_full_bucket(open_arena: Any) -> None:
    """What a bucket holds then lies in the future by as much as the clock was set back."""
    async with open_arena(battle_rate_per_minute=60, battle_rate_burst=2) as arena:
        for model in ("alpha", "beta"):
            await arena.add_worker(FakeWorker(model))
        bucket = arena.keys.rate("battle", "203.0.113.1")
        in_an_hour_us = (int((await arena.redis.time())[0]) + 3600) * 1_000_000
        await arena.redis.set(bucket, in_an_hour_us)

        assert await _create(arena, "203.0.113.1", 1) == [429]
        await asyncio.sleep(1.1)

        assert await _create(arena, "203.0.113.1", 1) == [201]
        assert await arena.redis.pttl(bucket) < 2100


async def test_votes_are_few_for_every_address_and_for_processes_on_this_machine(open_arena: Any) -> None:
    async with open_arena(vote_rate_per_minute=1, vote_rate_burst=3) as arena:
        for headers, wanted in (
            ({}, [404] * 3 + [429] * 2),
            (visitor("203.0.113.1"), [404] * 3 + [429] * 2),
            (visitor("127.0.0.1"), [429] * 5),  # a browser on this machine is the same address
            ({"X-Forwarded-For": "203.0.113.2"}, [429] * 5),  # and so is what a local process makes up
        ):
            replies = [await arena.vote("none", headers=headers) for _ in range(5)]
            assert [reply.status_code for reply in replies] == wanted
            assert 30 <= int(replies[-1].headers["retry-after"]) <= 60


async def test_a_voter_who_waits_as_long_as_told_may_vote(open_arena: Any) -> None:
    async with open_arena(vote_rate_per_minute=60, vote_rate_burst=1) as arena:
        await arena.add_two()
        battle = await arena.create()
        await arena.turn(battle["id"])
        assert (await arena.vote(battle["id"])).status_code == 200
        refused = await arena.vote(battle["id"])
        assert refused.status_code == 429

        await asyncio.sleep(int(refused.headers["retry-after"]))

        assert (await arena.vote(battle["id"])).status_code == 200  # the same vote again


async def test_a_proxy_that_is_not_trusted_lends_no_rights_of_a_local_process(open_arena: Any) -> None:
    async with open_arena(battle_rate_per_minute=1, battle_rate_burst=2) as arena:
        await arena.add_two()
        body = {"mode": "anonymous"}

        forged = [{"X-Forwarded-For": f"203.0.113.{number}"} for number in range(3)]
        statuses = [
            (await arena.client.post("/arena/battles", json=body, headers=headers)).status_code for headers in forged
        ]

        assert statuses == [201, 201, 429], "all of them are one address"
        assert (await arena.client.post("/arena/battles", json=body)).status_code == 201
