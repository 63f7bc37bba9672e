"""Turns of battles and chats whose models sleep: they are woken, and the wait tells nothing about them."""

import asyncio
import json
import time

import pytest

from controller.workers import waking
from tests.controller.conftest import OpenArena
from tests.controller.support.arena import Arena, end_state, eventually, of_kind
from tests.controller.support.fake_worker import FakeWorker, words
from wire.errors import ApiError, ErrorCode
from wire.sse import SseEvent

SHORT_WAITS_S = (0.2, 0.4, 0.8, 1.6)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "WAITS_S", SHORT_WAITS_S)


async def _asleep(arena: Arena, model: str) -> FakeWorker:
    worker = FakeWorker(model)
    worker.state = "asleep"
    return await arena.add_worker(worker)


async def test_both_sides_begin_when_the_sleeping_one_is_awake(open_arena: OpenArena) -> None:
    async with open_arena() as arena:
        alpha, beta = await _asleep(arena, "alpha"), await arena.add_worker(FakeWorker("beta"))
        alpha.may_wake.clear()
        battle = await arena.create("alpha", "beta")
        turn = asyncio.create_task(arena.turn(battle["id"]))
        await eventually(lambda: alpha.num_wakes == 1)
        await asyncio.sleep(0.1)
        assert (alpha.requests, beta.requests) == ([], [])  # the one that is awake waits, too
        alpha.may_wake.set()
        events = await turn
    assert events[0].event == "waking"
    assert json.loads(events[0].data) == {}
    assert end_state(events) == "answered"
    assert [request.model for request in alpha.requests] == ["alpha"]
    assert beta.num_wakes == 0


async def test_a_chat_wakes_its_model_and_says_so(open_arena: OpenArena) -> None:
    async with open_arena() as arena:
        await _asleep(arena, "alpha")
        chat = (await arena.client.post("/arena/chats", json={"model": "alpha"})).json()
        path = f"/arena/chats/{chat['id']}/turns"
        events = await arena.events("POST", path, json={"content": "hello"})
    assert events[0].event == "waking"
    assert "".join(json.loads(event.data)["text"] for event in of_kind(events, "delta")) == words(5)


async def test_a_request_of_v1_wakes_its_model_by_asking_it(open_arena: OpenArena) -> None:
    async with open_arena() as arena:
        alpha = await _asleep(arena, "alpha")
        body = {"model": "alpha", "messages": [{"role": "user", "content": "hello"}]}
        answer = await arena.client.post("/v1/chat/completions", json=body)
        alpha.refusal = ApiError(ErrorCode.MODEL_ASLEEP, "The model did not wake in time.")
        refused = await arena.client.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == words(5)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_asleep")
    assert "retry-after" in refused.headers


async def test_a_model_that_does_not_wake_refuses_the_turn_in_neutral_words(open_arena: OpenArena) -> None:
    async with open_arena() as arena:
        alpha, _ = await _asleep(arena, "alpha"), await arena.add_worker(FakeWorker("beta"))
        alpha.wake_refusal = ApiError(ErrorCode.MODEL_ASLEEP, "alpha did not wake")
        battle = await arena.create("alpha", "beta")
        events = await arena.turn(battle["id"])
        view = await arena.view(battle["id"])
        await eventually(arena.has_no_leases)
    [failed] = of_kind(events, "failed")
    assert json.loads(failed.data)["error"]["code"] == "queue_full"
    assert "alpha" not in failed.data
    assert view["turns"] == []


async def test_a_turn_can_be_stopped_while_its_model_wakes(open_arena: OpenArena) -> None:
    async with open_arena() as arena:
        alpha, _ = await _asleep(arena, "alpha"), await arena.add_worker(FakeWorker("beta"))
        alpha.may_wake.clear()
        battle = await arena.create("alpha", "beta")
        turn = asyncio.create_task(arena.turn(battle["id"]))
        await eventually(lambda: alpha.num_wakes == 1)
        await arena.client.post(f"/arena/battles/{battle['id']}/stop")
        assert end_state(await turn) == "answered"
        alpha.may_wake.set()


async def _first_delta_s(arena: Arena, models: set[str]) -> tuple[float, list[SseEvent]]:
    """Seconds from the beginning of a turn of hidden models to its first text, for a battle of these models."""
    while True:
        battle = await arena.create()
        stored = await arena.redis.hmget(arena.keys.battle(battle["id"]), "side:a", "side:b")
        if {json.loads(side or "{}")["model"] for side in stored} == models:
            break
    began, events, first_s = time.monotonic(), [], 0.0
    async for event in arena.streamed("POST", f"/arena/battles/{battle['id']}/turns", json={"content": "hi"}):
        events.append(event)
        if event.event == "delta" and not first_s:
            first_s = time.monotonic() - began
    return first_s, events


async def test_every_turn_of_hidden_models_waits_alike_while_any_model_of_the_arena_sleeps(
    open_arena: OpenArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "WAITS_S", (0.2, 0.8, 20.0))
    async with open_arena(paced=400.0) as arena:
        alpha, beta = await arena.add_two()
        gamma = await _asleep(arena, "gamma")
        for worker in (alpha, beta, gamma):
            worker.wake_s = 0.3  # what wakings have lately taken

        async def is_reported() -> bool:
            views = (await arena.client.get("/arena/workers", headers=arena.admin)).json()
            return all(view["load"]["wake_s"] == 0.3 for view in views)

        await eventually(is_reported)
        awake_s, awake = await _first_delta_s(arena, {"alpha", "beta"})
        asleep_s, asleep = await _first_delta_s(arena, {"alpha", "gamma"})
    assert gamma.num_wakes == 1
    assert awake[0].event == asleep[0].event == "waking"
    assert awake[0].data == asleep[0].data == "{}"
    assert 0.8 <= awake_s < 20
    assert 0.8 <= asleep_s < 20


async def test_an_arena_without_sleeping_models_does_not_wait(open_arena: OpenArena) -> None:
    async with open_arena(paced=400.0) as arena:
        await arena.add_two()
        events = await arena.turn((await arena.create())["id"])
    assert of_kind(events, "waking") == []


async def test_visitors_do_not_see_which_models_sleep(open_arena: OpenArena) -> None:
    async with open_arena() as arena:
        await _asleep(arena, "alpha"), await arena.add_worker(FakeWorker("beta"))
        shown = (await arena.client.get("/arena/workers")).json()
        models = (await arena.client.get("/v1/models")).json()["data"]
        to_the_admin = (await arena.client.get("/arena/workers", headers=arena.admin)).json()
    assert [(view["model"], view["state"]) for view in shown] == [("alpha", "ready"), ("beta", "ready")]
    assert [model["id"] for model in models] == ["alpha", "beta"]
    assert [view["state"] for view in to_the_admin] == ["asleep", "ready"]
