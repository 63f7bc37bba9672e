import asyncio
import json
from typing import Any

import httpx
import pytest
from arena import Arena, eventually, of_kind
from fake_worker import FakeWorker, words

from wire.errors import ApiError, ErrorCode


async def _two(arena: Arena, **options: Any) -> tuple[FakeWorker, FakeWorker]:
    return (
        await arena.add_worker(FakeWorker("alpha", **options)),
        await arena.add_worker(FakeWorker("beta", **options)),
    )


def _state(events: list[Any]) -> str:
    [last] = of_kind(events, "turn_finished")
    return str(json.loads(last.data)["state"])


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
    alpha, beta = await _two(arena)
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
    alpha, _ = await _two(arena)
    battle = await arena.create("alpha", "beta", sampling={"temperature": 0.5, "max_tokens": 3})
    assert [battle[side]["model"] for side in "ab"] == ["alpha", "beta"]

    events = await arena.turn(battle["id"])

    assert json.loads(of_kind(events, "finished")[0].data)["usage"]["completion_tokens"] == 3
    assert alpha.requests[0].sampling.temperature == 0.5


async def test_answers_are_bounded_by_half_of_the_models_context(arena: Arena) -> None:
    _, beta = await _two(arena)
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
        ({"mode": "named", "models": ["alpha", "nobody"]}, 404, "model_not_found"),
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


async def _post_turn(arena: Arena, battle_id: str, content: Any = "hello") -> httpx.Response:
    return await arena.client.post(f"/arena/battles/{battle_id}/turns", json={"content": content})


async def test_a_turn_that_cannot_be_changes_nothing(open_arena: Any) -> None:
    async with open_arena(max_content_chars=100) as arena:
        await _two(arena)
        battle = await arena.create()
        for content in ("", "  \n ", "x" * 101, None, 5, ["x"], "a\x00b"):
            response = await _post_turn(arena, battle["id"], content)
            assert response.status_code == 400, content
        assert (await _post_turn(arena, "nowhere")).json()["error"]["code"] == "battle_not_found"
        assert (await arena.view(battle["id"]))["turns"] == []
        assert (await arena.client.post(f"/arena/battles/{battle['id']}/regenerate")).status_code == 400


async def test_a_second_turn_waits_until_the_first_has_ended(arena: Arena) -> None:
    for worker in await _two(arena):
        worker.may_speak.clear()
    battle = await arena.create()
    first = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: sum(worker.num_open for worker in arena.workers) == 2)

    busy = await _post_turn(arena, battle["id"])

    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "battle_busy")
    for worker in arena.workers:
        worker.may_speak.set()
    assert _state(await first) == "answered"


async def test_of_many_turns_at_once_one_begins(arena: Arena) -> None:
    alpha, _ = await _two(arena)
    alpha.may_speak.clear()
    battle = await arena.create("alpha", "beta")

    turns = [asyncio.create_task(_post_turn(arena, battle["id"])) for _ in range(10)]
    await eventually(lambda: sum(turn.done() for turn in turns) == 9)
    alpha.may_speak.set()
    responses = await asyncio.gather(*turns)

    assert sorted(response.status_code for response in responses) == [200] + [409] * 9
    assert len(alpha.requests) == 1
    await eventually(lambda: arena.workers[0].num_open == 0)
    await eventually(arena.has_no_slots)


async def test_a_conversation_has_a_last_turn(open_arena: Any) -> None:
    async with open_arena(max_turns=2) as arena:
        await _two(arena)
        battle = await arena.create()
        await arena.turn(battle["id"])
        await arena.turn(battle["id"])

        response = await _post_turn(arena, battle["id"])

        assert (response.status_code, response.json()["error"]["code"]) == (409, "battle_full")
        assert (await arena.vote(battle["id"])).status_code == 200


async def test_regenerate_replaces_the_last_answers_and_only_those(arena: Arena) -> None:
    alpha, beta = await _two(arena)
    alpha.reply = beta.reply = "one"
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"], "first")
    await arena.turn(battle["id"], "second")
    alpha.reply, beta.reply = "two", "three"

    events = await arena.events("POST", f"/arena/battles/{battle['id']}/regenerate")

    assert _state(events) == "answered"
    assert [json.loads(event.data)["seq"] for event in of_kind(events, "delta")] == [0, 0]
    turns = (await arena.view(battle["id"]))["turns"]
    assert [turn["content"] for turn in turns] == ["first", "second"]
    assert [turns[0][side]["text"] for side in "ab"] == ["one", "one"]
    assert [turns[1][side]["text"] for side in "ab"] == ["two", "three"]
    assert [message.content for message in alpha.requests[-1].messages or ()] == ["first", "one", "second"]


async def test_stop_ends_both_sides_and_keeps_what_there_is(arena: Arena) -> None:
    alpha, beta = await _two(arena, num_tokens=1000, delay_s=0.01)
    battle = await arena.create("alpha", "beta")
    path, events, seen, response = f"/arena/battles/{battle['id']}", [], set(), None

    async for event in arena.streamed("POST", path + "/turns", json={"content": "hello"}):
        events.append(event)
        seen |= {json.loads(event.data)["side"]} if event.event == "delta" else set()
        if response is None and seen == {"a", "b"}:
            response = await arena.client.post(path + "/stop")

    assert response is not None
    assert response.json()["state"] == "answered"
    await eventually(lambda: (alpha.num_aborted, beta.num_aborted) == (1, 1))
    assert [json.loads(event.data)["finish_reason"] for event in of_kind(events, "finished")] == ["abort", "abort"]
    for side in "ab":
        text = response.json()["turns"][0][side]["text"]
        assert text
        assert words(1000).startswith(text)
    assert (await arena.vote(battle["id"])).status_code == 200
    await eventually(arena.has_no_slots)


async def test_stop_reaches_a_turn_of_another_controller(arena: Arena) -> None:
    alpha, beta = await _two(arena, num_tokens=1000, delay_s=0.01)
    other = await arena.add_controller()
    battle = await arena.create("alpha", "beta")
    turn = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: alpha.num_open + beta.num_open == 2)

    response = await other.post(f"/arena/battles/{battle['id']}/stop")

    assert response.json()["state"] == "answered"
    assert _state(await turn) == "answered"
    await eventually(lambda: (alpha.num_aborted, beta.num_aborted) == (1, 1))


async def test_stop_without_a_turn_does_nothing(arena: Arena) -> None:
    await _two(arena)
    battle = await arena.create()

    assert (await arena.client.post(f"/arena/battles/{battle['id']}/stop")).json()["state"] == "open"
    assert (await arena.client.post("/arena/battles/nowhere/stop")).status_code == 404


async def test_stopped_before_the_first_word_there_is_nothing_to_vote_on(arena: Arena) -> None:
    alpha, _ = await _two(arena)
    alpha.hang_at = 0
    battle = await arena.create("alpha", "beta")
    turn = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: alpha.num_open == 1)
    await arena.client.post(f"/arena/battles/{battle['id']}/stop")
    assert _state(await turn) == "answered"

    response = await arena.vote(battle["id"])

    assert (response.status_code, response.json()["error"]["code"]) == (409, "battle_not_finished")
    alpha.heal()
    await arena.events("POST", f"/arena/battles/{battle['id']}/regenerate")
    assert (await arena.vote(battle["id"])).status_code == 200


async def test_a_prompt_that_is_too_long_is_refused_and_the_battle_goes_on(arena: Arena) -> None:
    alpha, _ = await _two(arena)
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"], "short")
    alpha.refusal = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "alpha takes 4096 tokens, not 5000.")

    response = await _post_turn(arena, battle["id"], "long")

    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "4096" not in response.text
    view = await arena.view(battle["id"])
    assert (view["state"], len(view["turns"])) == ("answered", 1)
    alpha.heal()
    assert _state(await arena.turn(battle["id"], "short again")) == "answered"
    assert [message.content for message in alpha.requests[-1].messages or ()][-1] == "short again"
    assert (await arena.vote(battle["id"])).status_code == 200
    await eventually(arena.has_no_slots)


async def test_a_first_prompt_that_is_too_long_leaves_the_battle_open(arena: Arena) -> None:
    alpha, beta = await _two(arena)
    alpha.refusal = beta.refusal = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long")
    battle = await arena.create()

    assert (await _post_turn(arena, battle["id"])).status_code == 400

    assert (await arena.view(battle["id"]))["state"] == "open"
    alpha.heal()
    beta.heal()
    assert _state(await arena.turn(battle["id"])) == "answered"


async def test_a_refused_regeneration_keeps_the_answers(arena: Arena) -> None:
    alpha, _ = await _two(arena)
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"])
    alpha.refusal = ApiError(ErrorCode.QUEUE_FULL, "full")

    response = await arena.client.post(f"/arena/battles/{battle['id']}/regenerate")

    assert response.status_code == 503
    view = await arena.view(battle["id"])
    assert (view["state"], view["turns"][0]["a"]["text"]) == ("answered", words(5))
    assert (await arena.vote(battle["id"])).status_code == 200


async def test_a_refusal_after_the_stream_began_is_told_in_the_stream(open_arena: Any) -> None:
    async with open_arena(admission_wait_s=0.05) as arena:
        alpha, _ = await _two(arena)
        battle = await arena.create("alpha", "beta")
        await arena.turn(battle["id"])
        alpha.first_delay_s = 0.3
        alpha.fail_at = 0
        alpha.failure = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "alpha takes 4096 tokens")

        events = await arena.turn(battle["id"])

        assert [json.loads(event.data)["error"]["code"] for event in of_kind(events, "failed")] == [
            "context_length_exceeded"
        ]
        assert _state(events) == "answered"
        assert len((await arena.view(battle["id"]))["turns"]) == 1


async def test_both_sides_are_admitted_or_refused_together(arena: Arena) -> None:
    alpha = await arena.add_worker(FakeWorker("alpha", max_running=8))
    beta = await arena.add_worker(FakeWorker("beta", max_running=1))
    beta.may_speak.clear()
    first, second = await arena.create("alpha", "beta"), await arena.create("alpha", "beta")
    turn = asyncio.create_task(arena.turn(first["id"]))
    await eventually(lambda: beta.num_open == 1)

    response = await _post_turn(arena, second["id"])

    assert (response.status_code, response.json()["error"]["code"]) == (503, "queue_full")
    assert int(response.headers["retry-after"]) >= 1
    assert len(alpha.requests) == 1
    assert await arena.num_slots() <= 2
    assert (await arena.view(second["id"]))["state"] == "open"
    beta.may_speak.set()
    await turn
    assert _state(await arena.turn(second["id"])) == "answered"


async def test_a_side_that_fails_before_its_first_word_is_drawn_again_once(arena: Arena) -> None:
    alpha, beta = await _two(arena)
    battle = await arena.create()
    alpha.fail_at = 0
    await arena.add_worker(FakeWorker("gamma"))

    async def gamma_is_known() -> bool:
        return len((await arena.client.get("/v1/models")).json()["data"]) == 3

    await eventually(gamma_is_known)
    events = await arena.turn(battle["id"])

    assert len(of_kind(events, "restarted")) == 1
    assert _state(events) == "answered"
    reply = (await arena.vote(battle["id"])).json()
    assert sorted(reply["models"].values()) == ["beta", "gamma"]
    assert (await arena.vote_log())[0]["probability"] == 1.0
    assert len(beta.requests) == 1


async def test_without_another_model_to_draw_the_battle_is_aborted(arena: Arena) -> None:
    alpha, _ = await _two(arena)
    alpha.fail_at = 0
    battle = await arena.create()

    events = await arena.turn(battle["id"])

    ends = [event.event for event in events if event.event != "delta"]
    assert sorted(ends[:-1]) == ["failed", "finished"]
    assert ends[-1] == "turn_finished"
    assert _state(events) == "aborted"


async def test_a_worker_that_dies_in_the_middle_aborts_the_battle_with_one_failure(arena: Arena) -> None:
    alpha, beta = await _two(arena, num_tokens=50, delay_s=0.01)
    alpha.break_at = 5
    battle = await arena.create("alpha", "beta")

    events = await arena.turn(battle["id"])

    assert len(of_kind(events, "failed")) == 1
    assert json.loads(of_kind(events, "failed")[0].data)["error"]["code"] == "worker_failed"
    assert _state(events) == "aborted"
    view = await arena.view(battle["id"])
    assert (view["state"], view["error"]["code"]) == ("aborted", "worker_failed")
    vote = await arena.vote(battle["id"])
    assert (vote.status_code, vote.json()["error"]["code"]) == (409, "battle_aborted")
    assert (await _post_turn(arena, battle["id"])).json()["error"]["code"] == "battle_aborted"
    assert await arena.vote_log() == []
    assert (beta.num_aborted, beta.num_open) == (0, 0)
    assert (view["turns"][0]["b"]["text"], view["turns"][0]["b"]["finish_reason"]) == (words(50), "stop")


async def test_the_other_side_of_a_failed_one_goes_on_to_its_own_end(arena: Arena) -> None:
    alpha, _ = await _two(arena, num_tokens=20, delay_s=0.01)
    alpha.break_at = 2
    battle = await arena.create("alpha", "beta")

    events = await arena.turn(battle["id"])

    ends = [(event.event, json.loads(event.data).get("side")) for event in events if event.event != "delta"]
    assert ends == [("failed", "a"), ("finished", "b"), ("turn_finished", None)]
    first_end = next(index for index, event in enumerate(events) if event.event == "failed")
    assert [json.loads(event.data)["side"] for event in events[first_end:] if event.event == "delta"]
    assert await arena.num_slots() == 0


async def test_a_stop_after_a_failure_ends_the_other_side(arena: Arena) -> None:
    alpha, beta = await _two(arena, num_tokens=2000, delay_s=0.01)
    alpha.break_at = 2
    battle = await arena.create("alpha", "beta")
    path, events = f"/arena/battles/{battle['id']}", []

    async for event in arena.streamed("POST", path + "/turns", json={"content": "hello"}):
        events.append(event)
        if event.event == "failed":
            assert (await arena.client.post(path + "/stop")).status_code < 300

    [finished] = of_kind(events, "finished")
    assert (json.loads(finished.data)["side"], json.loads(finished.data)["finish_reason"]) == ("b", "abort")
    assert _state(events) == "aborted"
    await eventually(lambda: beta.num_open == 0)


async def test_two_sides_that_fail_are_told_each_and_the_first_says_why(arena: Arena) -> None:
    alpha, beta = await _two(arena, num_tokens=50, delay_s=0.01)
    alpha.break_at, beta.break_at = 2, 20
    battle = await arena.create("alpha", "beta")

    events = await arena.turn(battle["id"])

    assert [json.loads(event.data)["side"] for event in of_kind(events, "failed")] == ["a", "b"]
    assert _state(events) == "aborted"
    assert (await arena.view(battle["id"]))["error"]["code"] == "worker_failed"
    assert await arena.num_slots() == 0


async def test_a_worker_that_dies_in_the_middle_is_replaced_by_its_replica(arena: Arena) -> None:
    one = await arena.add_worker(FakeWorker("alpha", num_tokens=40))
    two = await arena.add_worker(FakeWorker("alpha", num_tokens=40))
    await arena.add_worker(FakeWorker("beta"))
    one.break_at, two.break_at = 11, None
    while not one.requests:  # each draws one of the two
        battle = await arena.create("alpha", "beta")
        assert _state(await arena.turn(battle["id"])) == "answered"
        assert (await arena.view(battle["id"]))["turns"][0]["a"]["text"] == words(40)
    assert any(request.resume_token_ids for request in two.requests)


async def test_models_that_went_away_before_the_first_turn_are_drawn_again(arena: Arena) -> None:
    alpha, _ = await _two(arena)
    battle = await arena.create()
    await arena.remove(alpha)
    await arena.add_worker(FakeWorker("gamma"))

    async def only_two_left() -> bool:
        models = (await arena.client.get("/v1/models")).json()["data"]
        return sorted(model["id"] for model in models) == ["beta", "gamma"]

    await eventually(only_two_left)
    assert _state(await arena.turn(battle["id"])) == "answered"
    assert sorted((await arena.vote(battle["id"])).json()["models"].values()) == ["beta", "gamma"]


async def test_a_battle_left_alone_for_too_long_has_expired(open_arena: Any) -> None:
    async with open_arena(battle_ttl_s=500) as arena:
        await _two(arena)
        battle = await arena.create()
        await arena.turn(battle["id"])
        key = arena.keys.battle(battle["id"])
        assert 900_000 < await arena.redis.pttl(key) <= 1_000_000  # it is forgotten later than it expires
        await arena.redis.hset(key, "expires_ms", 1)

        assert (await arena.view(battle["id"]))["state"] == "expired"
        assert (await _post_turn(arena, battle["id"])).status_code == 409
        assert (await arena.vote(battle["id"])).status_code == 409
        assert await arena.vote_log() == []


async def test_battle_ids_cannot_be_guessed(arena: Arena) -> None:
    await _two(arena)

    ids = {(await arena.create())["id"] for _ in range(5)}

    assert len(ids) == 5
    assert all(len(battle_id) >= 22 for battle_id in ids)
