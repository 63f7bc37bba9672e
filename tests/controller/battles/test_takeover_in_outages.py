"""When turns without an owner are claimed while the store goes away."""

import asyncio
import itertools
import secrets
from typing import Any, cast

from controller.battles.battle_store import ClaimedTurn
from controller.battles.turn_runner import TurnRunner
from controller.battles.turn_takeover import ROUND_S, TurnTakeover
from controller.store.store import unavailable
from tests.controller.support.arena import eventually, make_settings, running_arena
from tests.controller.support.fake_worker import words
from tests.controller.support.left_turns import abandon, delta_event, resume, texts_of
from tests.controller.support.running import StoreProcess


async def test_after_a_pause_without_the_store_owners_get_time_before_their_turns_are_claimed(
    own_store: StoreProcess,
) -> None:
    """Nothing could be renewed meanwhile, so every ownership has ended when the store is back."""
    settings = make_settings(
        own_store.url, f"test:{secrets.token_hex(4)}", owner_lease_s=1.0, store_timeout_s=0.5, worker_lease_s=60.0
    )
    async with running_arena(settings) as arena:
        await arena.add_controller()
        workers = await arena.add_two(num_tokens=200, delay_s=0.02)
        battle = await arena.create()
        turn = asyncio.create_task(arena.turn(battle["id"]))
        await eventually(lambda: sum(worker.num_open for worker in workers) == 2)
        own_store.kill()
        await asyncio.sleep(2.0)
        await asyncio.to_thread(own_store.start)

        assert texts_of(await turn) == {"a": words(200), "b": words(200)}
        assert [len(worker.requests) for worker in workers] == [1, 1]


class _FlakyStore:
    """A store of no turns that answers every other call, as one does that keeps being killed."""

    def __init__(self) -> None:
        self.num_calls = 0
        self.limits: list[int] = []  #: how many turns each answered call asked for

    async def claim_turns(self, limit: int) -> list[ClaimedTurn]:
        self.num_calls += 1
        if self.num_calls % 2 == 0:
            raise unavailable()
        self.limits.append(limit)
        return []


async def test_turns_are_claimed_also_while_the_store_goes_away_again_and_again() -> None:
    """Each outage gives owners time to renew. Outages that come sooner than that time ends do not begin it anew: a turn
    without an owner would wait until the store has been there for long enough at a stretch."""
    store: Any = _FlakyStore()
    takeover = TurnTakeover(store, cast(TurnRunner, None), ownership_s=3.0)

    for _ in range(40):
        await takeover.claim_round()

    claiming = [place for place, limit in enumerate(store.limits) if limit]
    pauses = [after - before for before, after in itertools.pairwise(claiming)]
    assert claiming[0] == 0  # nothing has been wrong yet
    assert set(pauses) == {round(3.0 / ROUND_S) + 1}


async def test_a_turn_without_an_owner_goes_on_though_the_store_is_killed_every_second(own_store: StoreProcess) -> None:
    settings = make_settings(own_store.url, f"test:{secrets.token_hex(4)}", owner_lease_s=3.0, store_timeout_s=0.5)
    async with running_arena(settings) as arena:
        workers = await arena.add_two(num_tokens=10)
        battle = await arena.create("alpha", "beta")
        is_over = asyncio.Event()

        async def keep_killing() -> None:
            while not is_over.is_set():
                own_store.kill()
                await asyncio.sleep(0.2)
                await asyncio.to_thread(own_store.start)
                await asyncio.sleep(0.6)

        own_store.kill()
        await asyncio.to_thread(own_store.start)
        await abandon(arena, battle["id"], [delta_event("a", 0, 0, 4)])
        killing = asyncio.create_task(keep_killing())
        try:
            await eventually(lambda: all(worker.requests for worker in workers))
        finally:
            is_over.set()
            await killing

        assert texts_of(await resume(arena, battle["id"])) == {"a": words(10), "b": words(10)}
