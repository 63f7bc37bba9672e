"""How a turn ends: stopped, refused, or with sides that fail."""

import asyncio
import json
from typing import Any

from tests.controller.support.arena import Arena, end_state, eventually, of_kind
from tests.controller.support.fake_worker import FakeWorker, words
from wire.errors import ApiError, ErrorCode


async def test_stop_ends_both_sides_and_keeps_what_there_is(arena: Arena) -> None:
    alpha, beta = await arena.add_two(num_tokens=1000, delay_s=0.01)
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
    await eventually(arena.has_no_leases)


async def test_stop_reaches_a_turn_of_another_controller(arena: Arena) -> None:
    alpha, beta = await arena.add_two(num_tokens=1000, delay_s=0.01)
    other = await arena.add_controller()
    battle = await arena.create("alpha", "beta")
    turn = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: alpha.num_open + beta.num_open == 2)

    response = await other.post(f"/arena/battles/{battle['id']}/stop")

    assert response.json()["state"] == "answered"
    assert end_state(await turn) == "answered"
    await eventually(lambda: (alpha.num_aborted, beta.num_aborted) == (1, 1))


async def test_stop_without_a_turn_does_nothing(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()

    assert (await arena.client.post(f"/arena/battles/{battle['id']}/stop")).json()["state"] == "open"
    assert (await arena.client.post("/arena/battles/nowhere/stop")).status_code == 404


async def test_stopped_before_the_first_word_there_is_nothing_to_vote_on(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    alpha.hang_at = 0
    battle = await arena.create("alpha", "beta")
    turn = asyncio.create_task(arena.turn(battle["id"]))
    await eventually(lambda: alpha.num_open == 1)
    await arena.client.post(f"/arena/battles/{battle['id']}/stop")
    assert end_state(await turn) == "answered"

    response = await arena.vote(battle["id"])

    assert (response.status_code, response.json()["error"]["code"]) == (409, "battle_not_finished")
    alpha.heal()
    await arena.events("POST", f"/arena/battles/{battle['id']}/regenerate")
    assert (await arena.vote(battle["id"])).status_code == 200


async def test_a_prompt_that_is_too_long_is_refused_and_the_battle_goes_on(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"], "short")
    alpha.refusal = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "alpha takes 4096 tokens, not 5000.")

    response = await arena.post_turn(battle["id"], "long")

    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "4096" not in response.text
    view = await arena.view(battle["id"])
    assert (view["state"], len(view["turns"])) == ("answered", 1)
    alpha.heal()
    assert end_state(await arena.turn(battle["id"], "short again")) == "answered"
    assert [message.content for message in alpha.requests[-1].messages or ()][-1] == "short again"
    assert (await arena.vote(battle["id"])).status_code == 200
    await eventually(arena.has_no_leases)


async def test_a_first_prompt_that_is_too_long_leaves_the_battle_open(arena: Arena) -> None:
    alpha, beta = await arena.add_two()
    alpha.refusal = beta.refusal = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long")
    battle = await arena.create()

    assert (await arena.post_turn(battle["id"])).status_code == 400

    assert (await arena.view(battle["id"]))["state"] == "open"
    alpha.heal()
    beta.heal()
    assert end_state(await arena.turn(battle["id"])) == "answered"


async def test_a_refused_regeneration_keeps_the_answers(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
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
        alpha, _ = await arena.add_two()
        battle = await arena.create("alpha", "beta")
        await arena.turn(battle["id"])
        alpha.first_delay_s = 0.3
        alpha.fail_at = 0
        alpha.failure = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "alpha takes 4096 tokens")

        events = await arena.turn(battle["id"])

        assert [json.loads(event.data)["error"]["code"] for event in of_kind(events, "failed")] == [
            "context_length_exceeded"
        ]
        assert end_state(events) == "answered"
        assert len((await arena.view(battle["id"]))["turns"]) == 1


async def test_both_sides_are_admitted_or_refused_together(arena: Arena) -> None:
    alpha = await arena.add_worker(FakeWorker("alpha", max_running=8))
    beta = await arena.add_worker(FakeWorker("beta", max_running=1))
    beta.may_speak.clear()
    first, second = await arena.create("alpha", "beta"), await arena.create("alpha", "beta")
    turn = asyncio.create_task(arena.turn(first["id"]))
    await eventually(lambda: beta.num_open == 1)

    response = await arena.post_turn(second["id"])

    assert (response.status_code, response.json()["error"]["code"]) == (503, "queue_full")
    assert int(response.headers["retry-after"]) >= 1
    assert len(alpha.requests) == 1
    assert await arena.num_leases() <= 2
    assert (await arena.view(second["id"]))["state"] == "open"
    beta.may_speak.set()
    await turn
    assert end_state(await arena.turn(second["id"])) == "answered"


async def test_a_side_that_fails_before_its_first_word_is_drawn_again_once(arena: Arena) -> None:
    alpha, beta = await arena.add_two()
    battle = await arena.create()
    alpha.fail_at = 0
    await arena.add_worker(FakeWorker("gamma"))

    async def gamma_is_known() -> bool:
        return len((await arena.client.get("/v1/models")).json()["data"]) == 3

    await eventually(gamma_is_known)
    events = await arena.turn(battle["id"])

    assert len(of_kind(events, "restarted")) == 1
    assert end_state(events) == "answered"
    reply = (await arena.vote(battle["id"])).json()
    assert sorted(reply["models"].values()) == ["beta", "gamma"]
    assert (await arena.vote_log())[0]["probability"] == 1 / 3  # of a draw among all three
    assert len(beta.requests) == 1


async def test_without_another_model_to_draw_the_turn_fails(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    alpha.fail_at = 0
    battle = await arena.create()

    events = await arena.turn(battle["id"])

    ends = [event.event for event in events if event.event != "delta"]
    assert sorted(ends[:-1]) == ["failed", "finished"]
    assert ends[-1] == "turn_finished"
    assert end_state(events) == "answered"


async def test_a_worker_that_dies_in_the_middle_fails_its_turn_and_not_the_battle(arena: Arena) -> None:
    alpha, beta = await arena.add_two(num_tokens=50, delay_s=0.01)
    alpha.break_at = 5
    battle = await arena.create("alpha", "beta")

    events = await arena.turn(battle["id"])

    assert len(of_kind(events, "failed")) == 1
    assert json.loads(of_kind(events, "failed")[0].data)["error"]["code"] == "worker_failed"
    assert end_state(events) == "answered"
    view = await arena.view(battle["id"])
    assert (view["state"], view["turns"][0]["a"]["error"]["code"]) == ("answered", "worker_failed")
    vote = await arena.vote(battle["id"])
    assert (vote.status_code, vote.json()["error"]["code"]) == (409, "battle_not_finished")
    assert await arena.vote_log() == []
    assert (beta.num_aborted, beta.num_open) == (0, 0)
    assert (view["turns"][0]["b"]["text"], view["turns"][0]["b"]["finish_reason"]) == (words(50), "stop")

    alpha.break_at = None
    events = await arena.events("POST", f"/arena/battles/{battle['id']}/regenerate")
    assert of_kind(events, "failed") == []
    [turn] = (await arena.view(battle["id"]))["turns"]
    assert (turn["a"]["text"], turn["a"]["error"]) == (words(50), None)
    assert (await arena.vote(battle["id"])).status_code == 200


async def test_a_vote_after_a_failed_turn_is_about_the_turns_before_it(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=6)
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"], "first")
    alpha.break_at = 2
    await arena.turn(battle["id"], "second")
    alpha.break_at = None
    await arena.turn(battle["id"], "third")
    assert [message.content for message in (alpha.requests[-1].messages or ())] == ["first", words(6), "third"]
    alpha.break_at = 2
    await arena.turn(battle["id"], "fourth")
    assert (await arena.vote(battle["id"])).status_code == 200
    [vote] = await arena.vote_log()
    assert vote["turns"] == 2
    assert vote["a"]["completion_tokens"] == 12


async def test_good_answers_stay_when_their_replacement_fails(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=6)
    battle = await arena.create("alpha", "beta")
    await arena.turn(battle["id"])
    before = (await arena.view(battle["id"]))["turns"]
    alpha.break_at = 2
    events = await arena.events("POST", f"/arena/battles/{battle['id']}/regenerate")
    assert json.loads(of_kind(events, "turn_finished")[0].data)["is_kept"] is False
    view = await arena.view(battle["id"])
    assert (view["state"], view["turns"]) == ("answered", before)
    assert (await arena.vote(battle["id"])).status_code == 200


async def test_the_question_of_a_stale_page_is_refused(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create("alpha", "beta")
    path = f"/arena/battles/{battle['id']}/turns"
    await arena.client.post(path, json={"content": "one", "number": 1})
    stale = await arena.client.post(path, json={"content": "of another tab", "number": 1})
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "stale_turn")
    assert len((await arena.view(battle["id"]))["turns"]) == 1
    assert (await arena.client.post(path, json={"content": "two", "number": 2})).status_code == 200


async def test_a_stale_page_answers_nothing_again(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create("alpha", "beta")
    for content in ("one", "two"):
        await arena.turn(battle["id"], content)
    path = f"/arena/battles/{battle['id']}/regenerate"
    stale = await arena.client.post(path, params={"number": 1})
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "stale_turn")
    assert (await arena.client.post(path, params={"number": 0})).status_code == 400
    assert (await arena.client.post(path, params={"number": 2})).status_code == 200


async def test_the_other_side_of_a_failed_one_goes_on_to_its_own_end(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=20, delay_s=0.01)
    alpha.break_at = 2
    battle = await arena.create("alpha", "beta")

    events = await arena.turn(battle["id"])

    ends = [(event.event, json.loads(event.data).get("side")) for event in events if event.event != "delta"]
    assert ends == [("failed", "a"), ("finished", "b"), ("turn_finished", None)]
    first_end = next(index for index, event in enumerate(events) if event.event == "failed")
    assert [json.loads(event.data)["side"] for event in events[first_end:] if event.event == "delta"]
    assert await arena.num_leases() == 0


async def test_a_stop_after_a_failure_ends_the_other_side(arena: Arena) -> None:
    alpha, beta = await arena.add_two(num_tokens=2000, delay_s=0.01)
    alpha.break_at = 2
    battle = await arena.create("alpha", "beta")
    path, events = f"/arena/battles/{battle['id']}", []

    async for event in arena.streamed("POST", path + "/turns", json={"content": "hello"}):
        events.append(event)
        if event.event == "failed":
            assert (await arena.client.post(path + "/stop")).status_code < 300

    [finished] = of_kind(events, "finished")
    assert (json.loads(finished.data)["side"], json.loads(finished.data)["finish_reason"]) == ("b", "abort")
    assert end_state(events) == "answered"
    await eventually(lambda: beta.num_open == 0)


async def test_two_sides_that_fail_are_told_each_and_the_first_says_why(arena: Arena) -> None:
    alpha, beta = await arena.add_two(num_tokens=50, delay_s=0.01)
    alpha.break_at, beta.break_at = 2, 20
    battle = await arena.create("alpha", "beta")

    events = await arena.turn(battle["id"])

    assert [json.loads(event.data)["side"] for event in of_kind(events, "failed")] == ["a", "b"]
    assert end_state(events) == "answered"
    [turn] = (await arena.view(battle["id"]))["turns"]
    assert {turn[side]["error"]["code"] for side in ("a", "b")} == {"worker_failed"}
    assert await arena.num_leases() == 0


async def test_a_worker_that_dies_in_the_middle_is_replaced_by_its_replica(arena: Arena) -> None:
    one = await arena.add_worker(FakeWorker("alpha", num_tokens=40))
    two = await arena.add_worker(FakeWorker("alpha", num_tokens=40))
    await arena.add_worker(FakeWorker("beta"))
    one.break_at, two.break_at = 11, None
    while not one.requests:  # each draws one of the two
        battle = await arena.create("alpha", "beta")
        assert end_state(await arena.turn(battle["id"])) == "answered"
        assert (await arena.view(battle["id"]))["turns"][0]["a"]["text"] == words(40)
    assert any(request.resume_token_ids for request in two.requests)
