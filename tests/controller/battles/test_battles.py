"""A battle from its creation to the vote: who plays, what is remembered, and which turns there can be."""

import asyncio
import json
from typing import Any

import pytest

from tests.controller.support.arena import Arena, end_state, eventually, of_kind
from tests.controller.support.fake_worker import FakeWorker, words


async def test_a_battle_runs_from_its_first_prompt_to_the_vote(arena: Arena) -> None:
    await arena.add_worker(FakeWorker("alpha", num_tokens=3, delay_s=0.01))
    await arena.add_worker(FakeWorker("beta", num_tokens=12, delay_s=0.01))
    battle = await arena.create()
    assert (battle["state"], battle["a"], battle["b"]) == ("open", {"model": None}, {"model": None})

    events = await arena.turn(battle["id"])

    texts = {"a": "", "b": ""}
    seqs: dict[str, list[int]] = {"a": [], "b": []}
    for event in of_kind(events, "delta"):
        delta = json.loads(event.data)
        texts[delta["side"]] += delta["text"]
        seqs[delta["side"]].append(delta["seq"])
    assert sorted(texts.values(), key=len) == [words(3), words(12)]
    assert all(numbers == list(range(len(numbers))) for numbers in seqs.values())
    assert sorted(json.loads(event.data)["side"] for event in of_kind(events, "finished")) == ["a", "b"]
    assert events[-1].event == "turn_finished"
    assert [event.id for event in events] == [f"1-{n}" for n in range(len(events))]
    view = await arena.view(battle["id"])
    assert view["state"] == "answered"
    assert {side: view["turns"][0][side]["text"] for side in "ab"} == texts

    reply = (await arena.vote(battle["id"], "tie")).json()

    assert sorted(reply["models"].values()) == ["alpha", "beta"]
    view = await arena.view(battle["id"])
    assert (view["state"], view["outcome"]) == ("voted", "tie")
    assert {side: view[side]["model"] for side in "ab"} == reply["models"]
    assert view["turns"][0]["a"]["usage"]["prompt_tokens"] == 7


async def test_the_fast_side_does_not_wait_for_the_slow_one(arena: Arena) -> None:
    slow = await arena.add_worker(FakeWorker("slow"))
    slow.may_speak.clear()
    await arena.add_worker(FakeWorker("fast", num_tokens=4))
    battle = await arena.create("slow", "fast")

    ends = []
    async for event in arena.streamed("POST", f"/arena/battles/{battle['id']}/turns", json={"content": "hello"}):
        if event.event == "finished":
            ends.append(json.loads(event.data)["side"])
            slow.may_speak.set()

    assert ends == ["b", "a"]


async def test_each_side_remembers_its_own_answers(arena: Arena) -> None:
    alpha, beta = await arena.add_two()
    alpha.reply, beta.reply = "from alpha", "from beta"
    battle = await arena.create("alpha", "beta")

    await arena.turn(battle["id"], "first")
    await arena.turn(battle["id"], "second")

    for worker, reply in ((alpha, "from alpha"), (beta, "from beta")):
        messages = [(message.role, message.content) for message in worker.requests[-1].messages or ()]
        assert messages == [("user", "first"), ("assistant", reply), ("user", "second")]


async def test_later_turns_go_to_the_worker_that_has_the_conversation(arena: Arena) -> None:
    replicas = [await arena.add_worker(FakeWorker("alpha")) for _ in range(3)]
    await arena.add_worker(FakeWorker("beta"))
    battle = await arena.create("alpha", "beta")

    for _ in range(4):
        await arena.turn(battle["id"])

    assert sorted(len(replica.requests) for replica in replicas) == [0, 0, 4]


async def test_named_battles_show_their_models_and_take_sampling(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    battle = await arena.create("alpha", "beta", sampling={"temperature": 0.5, "max_tokens": 3})
    assert [battle[side]["model"] for side in "ab"] == ["alpha", "beta"]

    events = await arena.turn(battle["id"])

    assert json.loads(of_kind(events, "finished")[0].data)["usage"]["completion_tokens"] == 3
    assert alpha.requests[0].sampling.temperature == 0.5


async def test_answers_are_bounded_by_half_of_the_models_context(arena: Arena) -> None:
    _, beta = await arena.add_two()
    small = FakeWorker("small")
    small.context_length = 100
    await arena.add_worker(small)
    battle = await arena.create("small", "beta")

    await arena.turn(battle["id"])

    assert small.requests[0].sampling.max_tokens == 50
    assert beta.requests[0].sampling.max_tokens == 1024


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"mode": "named", "models": ["alpha", "unknown"]}, 404, "model_not_found"),
        ({"mode": "named", "models": ["alpha", "alpha"]}, 400, "invalid_request"),
        ({"mode": "named"}, 400, "invalid_request"),
        ({"mode": "anonymous", "models": ["alpha", "beta"]}, 400, "invalid_request"),
        ({"mode": "anonymous", "sampling": {"temperature": 1}}, 400, "invalid_request"),
        ({"mode": "secret"}, 400, "invalid_request"),
        ({}, 400, "invalid_request"),
        ({"mode": "anonymous"}, 503, "not_enough_models"),
    ],
)
async def test_a_battle_that_cannot_be_is_not_created(arena: Arena, body: Any, status: int, code: str) -> None:
    await arena.add_worker(FakeWorker("alpha"))

    response = await arena.client.post("/arena/battles", json=body)

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_a_turn_that_cannot_be_changes_nothing(open_arena: Any) -> None:
    async with open_arena(max_content_chars=100) as arena:
        await arena.add_two()
        battle = await arena.create()
        for content in ("", "  \n ", "x" * 101, None, 5, ["x"], "a\x00b"):
            response = await arena.post_turn(battle["id"], content)
            assert response.status_code == 400, content
        assert (await arena.post_turn("nowhere")).json()["error"]["code"] == "battle_not_found"
        assert (await arena.view(battle["id"]))["turns"] == []
        assert (await arena.client.post(f"/arena/battles/{battle['id']}/regenerate")).status_code == 400


async def test_a_second_turn_waits_until_the_first_has_ended(arena: Arena) -> None:
    for worker in await arena.add_two():
        worker.may_speak.clear()
    battle = await arena.create()
    first = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: sum(worker.num_open for worker in arena.workers) == 2)

    busy = await arena.post_turn(battle["id"])

    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "battle_busy")
    for worker in arena.workers:
        worker.may_speak.set()
    assert end_state(await first) == "answered"


async def test_of_many_turns_at_once_one_begins(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    alpha.may_speak.clear()
    battle = await arena.create("alpha", "beta")

    turns = [asyncio.create_task(arena.post_turn(battle["id"])) for _ in range(10)]
    await eventually(lambda: sum(turn.done() for turn in turns) == 9)
    alpha.may_speak.set()
    responses = await asyncio.gather(*turns)

    assert sorted(response.status_code for response in responses) == [200] + [409] * 9
    assert len(alpha.requests) == 1
    await eventually(lambda: arena.workers[0].num_open == 0)
    await eventually(arena.has_no_leases)


async def test_a_conversation_has_a_last_turn(open_arena: Any) -> None:
    async with open_arena(max_turns=2) as arena:
        await arena.add_two()
        battle = await arena.create()
        await arena.turn(battle["id"])
        await arena.turn(battle["id"])

        response = await arena.post_turn(battle["id"])

        assert (response.status_code, response.json()["error"]["code"]) == (409, "battle_full")
        assert (await arena.vote(battle["id"])).status_code == 200


async def test_regenerate_replaces_the_last_answers_and_only_those(arena: Arena) -> None:
    alpha, beta = await arena.add_two()
    alpha.reply = beta.reply = "one"
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"], "first")
    await arena.turn(battle["id"], "second")
    alpha.reply, beta.reply = "two", "three"

    events = await arena.events("POST", f"/arena/battles/{battle['id']}/regenerate")

    assert end_state(events) == "answered"
    assert [json.loads(event.data)["seq"] for event in of_kind(events, "delta")] == [0, 0]
    turns = (await arena.view(battle["id"]))["turns"]
    assert [turn["content"] for turn in turns] == ["first", "second"]
    assert [turns[0][side]["text"] for side in "ab"] == ["one", "one"]
    assert [turns[1][side]["text"] for side in "ab"] == ["two", "three"]
    assert [message.content for message in alpha.requests[-1].messages or ()] == ["first", "one", "second"]


async def test_models_that_went_away_before_the_first_turn_are_drawn_again(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    battle = await arena.create()
    await arena.remove(alpha)
    await arena.add_worker(FakeWorker("gamma"))

    async def only_two_left() -> bool:
        models = (await arena.client.get("/v1/models")).json()["data"]
        return sorted(model["id"] for model in models) == ["beta", "gamma"]

    await eventually(only_two_left)
    assert end_state(await arena.turn(battle["id"])) == "answered"
    assert sorted((await arena.vote(battle["id"])).json()["models"].values()) == ["beta", "gamma"]


async def test_a_battle_left_alone_for_too_long_has_expired(open_arena: Any) -> None:
    async with open_arena(battle_ttl_s=500) as arena:
        await arena.add_two()
        battle = await arena.create()
        await arena.turn(battle["id"])
        key = arena.keys.battle(battle["id"])
        assert 900_000 < await arena.redis.pttl(key) <= 1_000_000  # it is forgotten later than it expires
        await arena.redis.hset(key, "expires_ms", 1)

        assert (await arena.view(battle["id"]))["state"] == "expired"
        assert (await arena.post_turn(battle["id"])).status_code == 409
        assert (await arena.vote(battle["id"])).status_code == 409
        assert await arena.vote_log() == []


async def test_base_models_are_never_drawn_and_refused_by_name(arena: Arena) -> None:
    base = FakeWorker("base")
    base.chat = "none"
    await arena.add_worker(base)
    await arena.add_worker(FakeWorker("alpha"))

    few = await arena.client.post("/arena/battles", json={"mode": "anonymous"})
    assert (few.status_code, few.json()["error"]["code"]) == (503, "not_enough_models")
    assert "text only: base." in few.json()["error"]["message"]
    plain = FakeWorker("plain")
    plain.chat = "plain"
    await arena.add_worker(plain)
    for _ in range(10):
        battle = await arena.create()
        assert end_state(await arena.turn(battle["id"])) == "answered"
    named = await arena.client.post("/arena/battles", json={"mode": "named", "models": ["alpha", "base"]})
    assert (named.status_code, named.json()["error"]["code"]) == (400, "not_a_chat_model")
    assert named.json()["error"]["param"] == "models"
    assert named.json()["error"]["message"] == (
        "base is a base model without a chat template; it completes text, it does not chat."
    )

    assert base.requests == []
    listed = (await arena.client.get("/v1/models")).json()["data"]
    assert {model["id"]: model["chat"] for model in listed} == {"alpha": "template", "base": "none", "plain": "plain"}
    text = await arena.client.post("/v1/completions", json={"model": "base", "prompt": "x"})
    assert text.status_code == 200, text.text
    assert len(base.requests) == 1


async def test_battle_ids_cannot_be_guessed(arena: Arena) -> None:
    await arena.add_two()

    ids = {(await arena.create())["id"] for _ in range(5)}

    assert len(ids) == 5
    assert all(len(battle_id) >= 22 for battle_id in ids)
