"""The administrator takes models and workers out of service, and brings them back."""

import json
from typing import Any

import pytest

from tests.controller.support.arena import Arena
from tests.controller.support.fake_worker import FakeWorker

OFF = {"is_on": False, "reason": "too slow today"}


async def switch(arena: Arena, model: str, **values: Any) -> None:
    response = await arena.client.put(f"/arena/admin/models/{model}", json=values, headers=arena.admin)
    assert response.status_code == 200, response.text


async def draw(arena: Arena) -> tuple[set[str], float]:
    """Models of a new anonymous battle, and the probability of their pair."""
    fields = await arena.redis.hgetall(arena.keys.battle((await arena.create())["id"]))
    return {json.loads(fields[f"side:{side}"])["model"] for side in "ab"}, float(fields["probability"])


async def drawn(arena: Arena, times: int = 12) -> set[str]:
    """Models of so many anonymous battles."""
    return set().union(*[(await draw(arena))[0] for _ in range(times)])


async def add_three(arena: Arena) -> None:
    await arena.add_two()
    await arena.add_worker(FakeWorker("gamma"))


async def test_a_model_that_is_off_is_neither_drawn_nor_chosen_nor_served(arena: Arena) -> None:
    await add_three(arena)
    await switch(arena, "gamma", **OFF)

    named = await arena.client.post("/arena/battles", json={"mode": "named", "models": ["alpha", "gamma"]})
    listed = (await arena.client.get("/v1/models")).json()["data"]
    chat = await arena.client.post(
        "/v1/chat/completions", json={"model": "gamma", "messages": [{"role": "user", "content": "hello"}]}
    )

    assert await drawn(arena) == {"alpha", "beta"}
    assert [model["id"] for model in listed] == ["alpha", "beta"]
    assert (named.status_code, named.json()["error"]["code"]) == (404, "model_not_found")
    assert (chat.status_code, chat.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_model_that_is_on_again_is_served_again(arena: Arena) -> None:
    await arena.add_two()
    await switch(arena, "beta", **OFF)
    assert (await arena.client.post("/arena/battles", json={"mode": "anonymous"})).status_code == 503
    await switch(arena, "beta", is_on=True)
    assert await drawn(arena, 1) == {"alpha", "beta"}


async def test_a_battle_goes_on_with_a_model_that_was_switched_off_meanwhile(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create("alpha", "beta")
    await switch(arena, "beta", **OFF)
    await arena.turn(battle["id"])
    assert (await arena.view(battle["id"]))["state"] == "answered"


async def test_a_model_of_weight_zero_is_not_drawn_but_may_be_chosen(arena: Arena) -> None:
    await add_three(arena)
    await switch(arena, "gamma", weight=0)
    assert await drawn(arena) == {"alpha", "beta"}
    await arena.create("alpha", "gamma")


async def test_an_undrawn_model_is_drawn_when_an_administrator_gives_it_a_weight(open_arena: Any) -> None:
    async with open_arena(undrawn_models=("gamma",)) as arena:
        await add_three(arena)
        assert await drawn(arena) == {"alpha", "beta"}
        await switch(arena, "gamma", weight=1)
        assert await drawn(arena) == {"alpha", "beta", "gamma"}
        await switch(arena, "gamma", weight=0)
        assert await drawn(arena) == {"alpha", "beta"}


async def test_the_probability_of_a_battle_follows_the_weights(open_arena: Any) -> None:
    async with open_arena(pairing="uniform") as arena:
        await add_three(arena)
        await switch(arena, "gamma", weight=0.25)
        draws = [await draw(arena) for _ in range(20)]
        # The pair without gamma weighs 1, the two others a quarter each.
        for models, probability in draws:
            assert probability == pytest.approx((0.25 if "gamma" in models else 1) / 1.5)


async def test_all_controllers_follow_a_switch(arena: Arena) -> None:
    await arena.add_two()
    await switch(arena, "beta", **OFF)
    other = await arena.add_controller()
    view = (await other.get("/arena/admin", headers=arena.admin)).json()
    assert {model["model"]: model["is_on"] for model in view["models"]} == {"alpha": True, "beta": False}


async def test_an_unknown_model_has_no_switch(arena: Arena) -> None:
    response = await arena.client.put("/arena/admin/models/nobody", json=OFF, headers=arena.admin)
    assert response.json()["error"]["code"] == "model_not_found"


async def test_a_drained_worker_finishes_its_answer_and_gets_no_new_one(arena: Arena) -> None:
    first, _ = await arena.add_two()
    second = await arena.add_worker(FakeWorker("alpha"))
    path = f"/arena/admin/workers/{first.worker_id}/drain"
    drained = await arena.client.post(path, json={"is_drained": True, "reason": "driver"}, headers=arena.admin)
    assert (drained.json()["state"], drained.json()["is_drained"]) == ("draining", True)

    before = len(first.requests)
    for _ in range(6):
        await arena.turn((await arena.create("alpha", "beta"))["id"])
    assert (len(first.requests), len(second.requests)) == (before, 6)

    await arena.client.post(path, json={"is_drained": False}, headers=arena.admin)
    view = (await arena.client.get("/arena/admin", headers=arena.admin)).json()
    assert {worker["worker_id"]: worker["state"] for worker in view["workers"]}[first.worker_id] == "ready"


async def test_a_worker_stays_drained_while_it_is_away(arena: Arena) -> None:
    first, _ = await arena.add_two()
    path = f"/arena/admin/workers/{first.worker_id}/drain"
    await arena.client.post(path, json={"is_drained": True}, headers=arena.admin)
    await arena.remove(first)
    view = (await arena.client.get("/arena/admin", headers=arena.admin)).json()
    [away] = [worker for worker in view["workers"] if worker["worker_id"] == first.worker_id]
    assert (away["is_drained"], away["model"], away["state"]) == (True, None, None)
