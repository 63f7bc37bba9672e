"""A request to begin a turn begins it once, however often it is sent: the answer of store or controller may be lost."""

import asyncio
import json
import secrets
from typing import Any

import pytest

from controller.battles.battle_record import Battle, StoredTurn
from controller.battles.battle_store import BattleStore
from controller.battles.turn_writer import TurnWriter
from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store, unavailable
from controller.store_address import parse_address
from controller.workers.congestion import FULL_S
from tests.controller.support.arena import Arena, end_state, eventually, of_kind
from tests.controller.support.running import StoreProcess
from wire.ids import BattleId
from wire.sse import SseEvent

KEY = {"Idempotency-Key": "a-key_1"}


class LossyStore(Store):
    """Executes every script and loses the answers of `script`, `num_lost` times."""

    def __init__(self, url: str, script: str, num_lost: int) -> None:
        super().__init__(parse_address(url), timeout_s=5.0, metrics=Metrics())
        self._script = script
        self.num_lost = num_lost

    async def run(self, script: str, *args: Any) -> Any:
        answer = await super().run(script, *args)
        if script == self._script and self.num_lost:
            self.num_lost -= 1
            raise unavailable()
        return answer


async def test_a_turn_whose_begin_lost_its_answer_has_begun_once(arena: Arena) -> None:
    await arena.add_two()
    battle_id = (await arena.create())["id"]
    lossy = LossyStore(arena.settings.redis_url, "begin_turn", num_lost=3)
    store = BattleStore(lossy, arena.keys, battle_ttl_s=100, ownership_s=20)
    battle = await store.read(battle_id)

    begun = await store.begin_turn(battle, 1, secrets.token_hex(8), StoredTurn(content="hello"), {})

    assert (begun.turn, begun.run, begun.first_event, begun.run_from) == (1, 1, 0, "0-0")
    assert lossy.num_lost == 0
    assert not await store.advance(begun, "append", begun.first_event, [("delta", "{}", "")], {})
    await lossy.close()


async def test_a_regeneration_whose_begin_lost_its_answer_continues_the_numbers(arena: Arena) -> None:
    await arena.add_two()
    battle_id = (await arena.create())["id"]
    last = (await arena.turn(battle_id))[-1].id
    lossy = LossyStore(arena.settings.redis_url, "begin_turn", num_lost=1)
    store = BattleStore(lossy, arena.keys, battle_ttl_s=100, ownership_s=20)
    battle = await store.read(battle_id)

    begun = await store.begin_turn(battle, 1, secrets.token_hex(8), StoredTurn(content="hello"), {})

    assert (begun.run, begun.run_from) == (2, last)
    assert begun.first_event == int(str(last).partition("-")[2]) + 1
    await lossy.close()


async def test_an_owner_that_lost_the_answer_of_the_end_is_told_that_it_has_ended(own_store: StoreProcess) -> None:
    lossy = LossyStore(own_store.url, "", 0)
    store = BattleStore(lossy, Keys("p"), battle_ttl_s=100, ownership_s=20)
    begun = await store.begin_turn(await _opened(store), 1, "me", StoredTurn(content="hello"), {})
    for _ in range(2):
        await store.advance(begun, "finish", 0, [("turn_finished", "{}", "")], {"state": "answered"})

    assert len(await store.read_turn_events(begun)) == 1
    assert await store.claim_turns(8) == []
    await lossy.close()


@pytest.mark.parametrize("num_kept", range(4))
async def test_events_that_a_cut_store_lost_are_written_again(num_kept: int, own_store: StoreProcess) -> None:
    store_client = LossyStore(own_store.url, "", 0)
    keys = Keys("p")
    store = BattleStore(store_client, keys, battle_ttl_s=100, ownership_s=20)
    begun = await store.begin_turn(await _opened(store), 1, "me", StoredTurn(content="hello"), {})
    writer = TurnWriter(store, begun, flush_s=0, patience_s=1)
    writer.open()
    for number in range(3):
        writer.delta("a", f"{number} ", [number])
        await writer._send("append")
    written: list[tuple[str, Any]] = [*await store.read_turn_events(begun)]
    events = keys.events(begun.battle_id)
    await store_client.redis.delete(events)
    for entry_id, fields in written[:num_kept]:
        await store_client.redis.xadd(events, fields, entry_id)

    writer.delta("a", "3 ", [3])
    await writer.end("finish", {"state": "answered"})

    found = await store.read_turn_events(begun)
    assert found[:3] == written
    assert [entry_id for entry_id, _ in found] == ["1-0", "1-1", "1-2", "1-3"]
    await store_client.close()


async def _opened(store: BattleStore) -> Battle:
    """A battle without a turn, written directly."""
    side = json.dumps({"model": "m", "revision": "r", "worker_id": None})
    fields = {"mode": "anonymous", "state": "open", "voter": "v", "voter_day": "d", "sampling": "{}", "turn": "0"}
    await store.create(BattleId("b"), {**fields, "run": "0", "side:a": side, "side:b": side})
    return await store.read(BattleId("b"))


async def _post(arena: Arena, battle_id: str, **headers: str) -> list[SseEvent]:
    return await arena.turn(battle_id, headers={**KEY, **headers})


async def test_a_request_that_is_sent_again_gets_the_events_of_its_turn(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=40, delay_s=0.01)
    other = await arena.add_controller()
    battle_id = (await arena.create("alpha", "beta"))["id"]
    first = asyncio.create_task(_post(arena, battle_id))
    await eventually(lambda: alpha.num_open == 1)

    running = await arena.turn(battle_id, headers=KEY, client=other)
    finished = await arena.turn(battle_id, headers=KEY, client=other)

    assert running == finished == await first
    assert await _post(arena, battle_id, **{"Last-Event-ID": str(running[3].id)}) == running[4:]
    assert len(alpha.requests) == 1
    assert len((await arena.view(battle_id))["turns"]) == 1


async def test_of_the_same_request_sent_many_times_at_once_one_begins_the_turn(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=10)
    other = await arena.add_controller()
    battle_id = (await arena.create("alpha", "beta"))["id"]

    answers = await asyncio.gather(
        *(arena.turn(battle_id, headers=KEY, client=client) for client in (arena.client, other) * 4)
    )

    assert answers == [answers[0]] * 8
    assert end_state(answers[0]) == "answered"
    assert len(alpha.requests) == 1


async def test_a_regeneration_that_is_sent_again_is_one(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=4)
    battle_id = (await arena.create("alpha", "beta"))["id"]
    await arena.turn(battle_id)
    path = f"/arena/battles/{battle_id}/regenerate"

    first, again = [await arena.events("POST", path, headers=KEY) for _ in range(2)]

    assert first == again
    assert of_kind(first, "delta")
    assert len(alpha.requests) == 2
    await arena.events("POST", path, headers={"Idempotency-Key": "another"})
    assert len(alpha.requests) == 3


async def test_a_refused_request_may_be_sent_again_under_its_key(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=4, max_running=1)
    battle_id = (await arena.create("alpha", "beta"))["id"]
    leases = arena.keys.leases(alpha.worker_id)
    await arena.take_place(leases)
    refused = await arena.client.post(f"/arena/battles/{battle_id}/turns", json={"content": "hello"}, headers=KEY)
    assert refused.status_code == 503

    await arena.redis.delete(leases)
    await asyncio.sleep(FULL_S)  # for so long the controller takes the store's word that the worker is full

    assert end_state(await _post(arena, battle_id)) == "answered"


async def test_without_a_key_or_with_another_one_a_running_turn_is_busy(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    alpha.may_speak.clear()
    battle_id = (await arena.create("alpha", "beta"))["id"]
    turn = asyncio.create_task(_post(arena, battle_id))
    await eventually(lambda: alpha.num_open == 1)

    path = f"/arena/battles/{battle_id}/turns"
    for headers in ({}, {"Idempotency-Key": "b"}):
        busy = await arena.client.post(path, json={"content": "hello"}, headers=headers)
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "battle_busy")
    alpha.may_speak.set()
    assert end_state(await turn) == "answered"


@pytest.mark.parametrize("key", ["", "x" * 65, "a b", "\u00e9", "a,b"])
async def test_a_key_that_is_none_is_refused(arena: Arena, key: str) -> None:
    await arena.add_two()
    battle_id = (await arena.create())["id"]

    headers = {"Idempotency-Key": key.encode()}
    response = await arena.client.post(f"/arena/battles/{battle_id}/turns", json={"content": "x"}, headers=headers)  # type: ignore[arg-type]

    assert response.status_code == 400
    assert (await arena.view(battle_id))["turns"] == []


async def test_a_key_of_another_turn_begins_nothing(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    battle_id = (await arena.create("alpha", "beta"))["id"]
    await _post(arena, battle_id)
    path = f"/arena/battles/{battle_id}/turns"

    other_text = await arena.client.post(path, json={"content": "something else"}, headers=KEY)
    await arena.turn(battle_id, "second")
    earlier = await arena.client.post(path, json={"content": "hello"}, headers=KEY)

    for response in (other_text, earlier):
        assert (response.status_code, response.json()["error"]["param"]) == (400, "Idempotency-Key")
    assert len(alpha.requests) == 2
