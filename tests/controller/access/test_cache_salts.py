"""Which requests may share cached prefixes at a worker, as the workers see it."""

from typing import Any

import httpx

from controller.access.addresses import ClientAddress
from controller.access.cache_salts import CacheSalts
from tests.controller.support.arena import Arena, end_state, visitor
from tests.controller.support.fake_worker import FakeWorker

KEYS = ("first-key-for-tests", "second-key-for-tests")


async def _chat(arena: Arena, headers: dict[str, str], **fields: Any) -> httpx.Response:
    body = {"model": "alpha", "messages": [{"role": "user", "content": "hello"}], **fields}
    return await arena.client.post("/v1/chat/completions", json=body, headers=headers)


def _salts(worker: FakeWorker) -> list[str]:
    assert all(len(request.cache_salt) >= 32 for request in worker.requests)
    return [request.cache_salt for request in worker.requests]


async def test_the_turns_of_a_battle_share_a_salt_and_two_battles_none(arena: Arena) -> None:
    alpha, beta = await arena.add_two()
    battles = [await arena.create("alpha", "beta") for _ in range(2)]
    for battle in battles:
        await arena.turn(battle["id"])
        await arena.turn(battle["id"])
        await arena.events("POST", f"/arena/battles/{battle['id']}/regenerate")

    first, second = _salts(alpha)[:3], _salts(alpha)[3:]
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]
    assert _salts(beta) == _salts(alpha)


async def test_another_controller_gives_a_battle_the_same_salt(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"])
    other = await arena.add_controller()
    await arena.turn(battle["id"], client=other)

    assert len(alpha.requests) == 2
    assert len(set(_salts(alpha))) == 1


async def test_a_replayed_answer_keeps_its_salt(arena: Arena) -> None:
    replicas = [await arena.add_worker(FakeWorker("alpha")) for _ in range(2)]
    await arena.add_worker(FakeWorker("beta"))
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"])
    [used] = [worker for worker in replicas if worker.requests]  # the second turn goes to the same replica
    [other] = [worker for worker in replicas if worker is not used]
    used.break_at = 2

    assert end_state(await arena.turn(battle["id"])) == "answered"

    [replay] = other.requests
    assert len(replay.resume_token_ids) == 2
    assert {request.cache_salt for request in used.requests} == {replay.cache_salt}


async def test_callers_are_told_apart_by_address_and_by_key(open_arena: Any) -> None:
    async with open_arena(api_keys=KEYS) as arena:
        alpha = await arena.add_worker(FakeWorker("alpha"))
        bearers = [{"Authorization": f"Bearer {key}"} for key in KEYS]
        callers = [
            {**bearer, **address} for bearer in bearers for address in ({}, visitor("203.0.113.1"), visitor("2001::1"))
        ]
        for headers in callers * 2:
            assert (await _chat(arena, headers)).status_code == 200
        prompt = {"model": "alpha", "prompt": "hello"}
        assert (await arena.client.post("/v1/completions", json=prompt, headers=callers[0])).status_code == 200

    salts = _salts(alpha)
    assert len(set(salts)) == len(callers)
    assert salts[: len(callers)] == salts[len(callers) : -1]
    assert salts[-1] == salts[0]


async def test_without_keys_two_addresses_with_the_same_word_for_a_key_share_nothing(arena: Arena) -> None:
    alpha = await arena.add_worker(FakeWorker("alpha"))
    for address in ("203.0.113.1", "203.0.113.2"):
        await _chat(arena, {"Authorization": "Bearer unused", **visitor(address)})

    assert len(set(_salts(alpha))) == 2


async def test_a_client_can_divide_its_own_salt_and_never_choose_that_of_another(arena: Arena) -> None:
    alpha = await arena.add_worker(FakeWorker("alpha"))
    await _chat(arena, visitor("203.0.113.1"))
    [others] = _salts(alpha)
    for cache_salt in (others, others, "", "a"):
        assert (await _chat(arena, {}, cache_salt=cache_salt)).status_code == 200

    mine = _salts(alpha)[1:]
    assert mine[0] == mine[1]
    assert len({others, *mine}) == 4


def test_salts_depend_on_the_secret_and_tell_nothing_of_it() -> None:
    client = ClientAddress("203.0.113.1", is_local=False)
    one, other = CacheSalts("secret"), CacheSalts("another")
    assert one.of_caller(None, client) == CacheSalts("secret").of_caller(None, client)
    assert one.of_caller(None, client) != other.of_caller(None, client)
    assert one.of_battle("b", "v") not in (one.of_battle("b", "w"), one.of_battle("c", "v"), other.of_battle("b", "v"))
