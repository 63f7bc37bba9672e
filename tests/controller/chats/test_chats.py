"""Chats: one model at a time, kept by the arena for their visitor alone, and for nothing else."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from controller.chats.chat_store import ADDRESS_FACTOR
from tests.controller.conftest import OpenArena
from tests.controller.support.arena import Arena, end_state, eventually, of_kind, visitor
from tests.controller.support.fake_worker import FakeWorker, thoughts, words
from wire.battles import DeltaEvent
from wire.chat import ChatMessage
from wire.errors import ApiError, ErrorCode
from wire.ids import ChatId
from wire.sse import SseEvent


async def _create(arena: Arena, model: str = "alpha", **body: Any) -> str:
    response = await arena.client.post("/arena/chats", json={"model": model, **body})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def _ask(arena: Arena, chat_id: str, content: str = "hello", **body: Any) -> list[SseEvent]:
    return await arena.events("POST", f"/arena/chats/{chat_id}/turns", json={"content": content, **body})


async def _again(arena: Arena, chat_id: str, **body: Any) -> list[SseEvent]:
    return await arena.events("POST", f"/arena/chats/{chat_id}/regenerate", json=body)


async def _view(arena: Arena, chat_id: str, **kwargs: Any) -> Any:
    response = await arena.client.get(f"/arena/chats/{chat_id}", **kwargs)
    assert response.status_code == 200, response.text
    return response.json()


def _text(events: list[SseEvent]) -> str:
    """What a reader shows of side a, the only one."""
    deltas = [json.loads(event.data) for event in of_kind(events, "delta")]
    assert [(delta["side"], delta["seq"]) for delta in deltas] == [("a", number) for number in range(len(deltas))]
    return "".join(delta["text"] for delta in deltas)


def _messages(worker: FakeWorker, number: int = 0) -> tuple[ChatMessage, ...]:
    """What a worker was sent in its request of this number."""
    return worker.requests[number].messages or ()


def _code(response: httpx.Response) -> str:
    return str(response.json()["error"]["code"])


async def test_a_chat_keeps_questions_answers_models_and_the_system_prompt(arena: Arena) -> None:
    alpha, beta = await arena.add_two()
    chat_id = await _create(arena, system_prompt=" Be brief. ", sampling={"temperature": 0.5})

    assert _text(await _ask(arena, chat_id, "one", number=1)) == words(5)
    events = await _ask(arena, chat_id, "two", number=2, model="beta", sampling={"max_tokens": 7})
    assert end_state(events) == "answered"

    view = await _view(arena, chat_id)
    assert [(turn["content"], turn["model"], turn["answer"]["text"]) for turn in view["turns"]] == [
        ("one", "alpha", words(5)),
        ("two", "beta", words(5)),
    ]
    assert (view["state"], view["model"], view["system_prompt"]) == ("answered", "beta", "Be brief.")
    assert [(message.role, message.content) for message in _messages(beta)] == [
        ("system", "Be brief."),
        ("user", "one"),
        ("assistant", words(5)),
        ("user", "two"),
    ]
    assert (alpha.requests[0].sampling.temperature, beta.requests[0].sampling.temperature) == (0.5, None)
    assert beta.requests[0].sampling.max_tokens == 7
    await eventually(arena.has_no_leases)


async def test_thoughts_are_shown_and_go_to_their_own_model_alone(arena: Arena) -> None:
    alpha, beta = await arena.add_two(num_tokens=4)
    alpha.num_thoughts = 2
    chat_id = await _create(arena)
    events = await _ask(arena, chat_id, "one")
    assert "".join(json.loads(event.data).get("thoughts", "") for event in of_kind(events, "delta")) == thoughts(2)
    await _ask(arena, chat_id, "two")
    await _ask(arena, chat_id, "three", model="beta")
    assert _messages(alpha, 1)[1].reasoning_content == thoughts(2)
    assert [message.reasoning_content for message in _messages(beta)] == [None] * 5


async def test_the_last_turn_is_answered_again_changed_and_by_another_model(arena: Arena) -> None:
    _, beta = await arena.add_two()
    chat_id = await _create(arena)
    await _ask(arena, chat_id, "one")
    await _ask(arena, chat_id, "two")
    assert _text(await _again(arena, chat_id, number=2, content="deux", model="beta")) == words(5)
    view = await _view(arena, chat_id)
    assert [(turn["content"], turn["model"]) for turn in view["turns"]] == [("one", "alpha"), ("deux", "beta")]
    assert [message.content for message in _messages(beta)] == ["one", words(5), "deux"]


async def test_a_good_answer_stays_where_the_changed_question_cannot_be_answered(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    chat_id = await _create(arena)
    await _ask(arena, chat_id, "one")
    before = (await _view(arena, chat_id))["turns"]
    alpha.fail_at = 2
    events = await _again(arena, chat_id, content="two")
    assert json.loads(of_kind(events, "turn_finished")[0].data)["is_kept"] is False
    assert (await _view(arena, chat_id))["turns"] == before


async def test_a_failed_turn_stays_in_place_and_is_answered_again(arena: Arena) -> None:
    alpha, beta = await arena.add_two()
    alpha.fail_at = 2
    chat_id = await _create(arena)
    events = await _ask(arena, chat_id, "one")
    assert of_kind(events, "failed")
    [turn] = (await _view(arena, chat_id))["turns"]
    assert (turn["content"], turn["answer"]["error"]["code"]) == ("one", "worker_failed")
    await _ask(arena, chat_id, "two", model="beta")
    assert [message.content for message in _messages(beta)] == ["two"]  # a failed turn counts for nothing


async def test_a_stale_page_is_refused_and_a_request_that_comes_twice_begins_one_turn(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    chat_id = await _create(arena)
    path = f"/arena/chats/{chat_id}/turns"
    key = {"Idempotency-Key": "k1"}
    body = {"content": "one", "number": 1}
    twice = [await arena.events("POST", path, json=body, headers=key) for _ in range(2)]
    assert [_text(events) for events in twice] == [words(5)] * 2
    assert len(alpha.requests) == 1
    stale = await arena.client.post(path, json={"content": "two", "number": 1})
    assert (stale.status_code, _code(stale)) == (409, "stale_turn")
    again = await arena.client.post(f"/arena/chats/{chat_id}/regenerate", json={"number": 2})
    assert (again.status_code, _code(again)) == (409, "stale_turn")


async def test_a_stopped_answer_keeps_its_text_and_a_stream_is_resumed_by_event_id(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=1000, delay_s=0.01)
    chat_id = await _create(arena)
    asking = asyncio.create_task(_ask(arena, chat_id))
    await eventually(lambda: alpha.num_open == 1)
    seen: list[SseEvent] = []
    async for event in arena.streamed("GET", f"/arena/chats/{chat_id}/stream"):
        seen.append(event)
        if len(seen) == 3:
            break
    running = await _view(arena, chat_id)
    assert (running["state"], running["turns"][0]["model"]) == ("streaming", "alpha")
    busy = await arena.client.post(f"/arena/chats/{chat_id}/turns", json={"content": "more"})
    assert (busy.status_code, _code(busy)) == (409, "battle_busy")
    stopped = (await arena.client.post(f"/arena/chats/{chat_id}/stop")).json()
    assert stopped["turns"][0]["answer"]["finish_reason"] == "abort"
    whole = await asking
    headers = {"Last-Event-ID": str(seen[-1].id)}
    rest = await arena.events("GET", f"/arena/chats/{chat_id}/stream", headers=headers)
    assert [event.id for event in [*seen, *rest]] == [event.id for event in whole]
    assert stopped["turns"][0]["answer"]["text"] == _text(whole)


async def test_the_turn_of_a_dead_controller_goes_on(arena: Arena) -> None:
    alpha, beta = await arena.add_two(num_tokens=30)
    chat_id = ChatId(await _create(arena, "beta", system_prompt="Be brief."))
    now_ms = int((await arena.redis.time())[0]) * 1000
    left: dict[Any, Any] = {
        **{"state": "streaming", "turn": "1", "run": "1", "owner": "dead", "owner_until": now_ms - 1},
        **{"turn:1": '{"content":"hello","model":"beta"}', "began_ms": now_ms - 3000, "takeovers": 0},
        **{"undo": "", "undo_turn": "0", "run_from": "0-0"},
    }
    await arena.redis.hset(arena.keys.chat(chat_id), mapping=left)
    written = DeltaEvent(side="a", seq=0, text=words(4)).model_dump_json()
    private = json.dumps({"tokens": [1000 + number for number in range(4)], "first_token_ms": 5.0})
    entry: dict[Any, Any] = {"event": "delta", "data": written, "private": private}
    await arena.redis.xadd(arena.keys.chat_events(chat_id), entry, id="1-0")
    await arena.redis.zadd(arena.keys.running_chats, {chat_id: now_ms - 1})

    assert _text(await arena.events("GET", f"/arena/chats/{chat_id}/stream")) == words(30)
    assert (len(beta.requests[0].resume_token_ids), alpha.requests) == (4, [])
    assert [message.role for message in _messages(beta)] == ["system", "user"]
    [turn] = (await _view(arena, chat_id))["turns"]
    assert (turn["answer"]["text"], turn["model"]) == (words(30), "beta")
    assert not await arena.redis.zcard(arena.keys.running_chats)


async def test_another_visitor_finds_nothing(arena: Arena) -> None:
    await arena.add_two()
    own, other = visitor("203.0.113.1"), visitor("203.0.113.2")
    chat_id = (await arena.client.post("/arena/chats", json={"model": "alpha"}, headers=own)).json()["id"]
    path = f"/arena/chats/{chat_id}"
    refused = [
        await arena.client.get(path, headers=other),
        await arena.client.post(f"{path}/turns", json={"content": "hello"}, headers=other),
        await arena.client.post(f"{path}/regenerate", json={}, headers=other),
        await arena.client.get(f"{path}/stream", headers=other),
        await arena.client.post(f"{path}/stop", headers=other),
        await arena.client.delete(path, headers=other),
    ]
    assert {(response.status_code, _code(response)) for response in refused} == {(404, "chat_not_found")}
    assert (await _view(arena, chat_id, headers=own))["turns"] == []


async def test_the_cookie_given_with_a_chat_opens_it_from_any_address(arena: Arena) -> None:
    await arena.add_two()
    first = await arena.client.post("/arena/chats", json={"model": "alpha"}, headers=visitor("203.0.113.1"))
    cookie = first.headers["set-cookie"].split(";")[0]
    headers = {**visitor("203.0.113.9"), "Cookie": cookie}
    assert (await _view(arena, first.json()["id"], headers=headers))["model"] == "alpha"


async def test_a_deleted_chat_is_gone_with_its_running_turn(arena: Arena) -> None:
    alpha, _ = await arena.add_two(num_tokens=1000, delay_s=0.01)
    chat_id = await _create(arena)
    asking = asyncio.create_task(_ask(arena, chat_id))
    await eventually(lambda: alpha.num_open == 1)
    assert (await arena.client.delete(f"/arena/chats/{chat_id}")).status_code == 204
    await asking
    await eventually(arena.has_no_leases)
    assert (await arena.client.get(f"/arena/chats/{chat_id}")).status_code == 404
    assert [key async for key in arena.redis.scan_iter(match=f"{arena.keys.prefix}:chat*")] == []


async def test_only_the_newest_chats_of_a_visitor_are_kept(open_arena: OpenArena) -> None:
    async with open_arena(chats_per_visitor=2) as arena:
        await arena.add_two()
        stranger = await arena.client.post("/arena/chats", json={"model": "alpha"})
        own = {"Cookie": stranger.headers["set-cookie"].split(";")[0]}
        chats = [await arena.client.post("/arena/chats", json={"model": "alpha"}, headers=own) for _ in range(3)]
        await arena.events("POST", f"/arena/chats/{chats[2].json()['id']}/turns", json={"content": "x"}, headers=own)
        paths = [f"/arena/chats/{chat.json()['id']}" for chat in (stranger, *chats)]
        codes = [(await arena.client.get(path, headers=own)).status_code for path in paths]
        assert codes == [200, 404, 200, 200]


async def test_clients_without_cookies_cannot_fill_the_store(open_arena: OpenArena) -> None:
    async with open_arena(chats_per_visitor=1) as arena:
        await arena.add_two()
        chats = [await _create(arena) for _ in range(ADDRESS_FACTOR + 2)]
        codes = [(await arena.client.get(f"/arena/chats/{chat_id}")).status_code for chat_id in chats]
        assert codes == [404, 404, *[200] * ADDRESS_FACTOR]


async def test_a_chat_is_forgotten_some_time_after_its_last_turn(open_arena: OpenArena) -> None:
    async with open_arena(chat_ttl_s=1000) as arena:
        await arena.add_two()
        chat_id = ChatId(await _create(arena))
        await arena.redis.pexpire(arena.keys.chat(chat_id), 5000)
        await _ask(arena, chat_id)
        assert 900_000 < await arena.redis.pttl(arena.keys.chat(chat_id)) <= 1_000_000
        await arena.redis.pexpire(arena.keys.chat(chat_id), 0)
        assert (
            _code(await arena.client.post(f"/arena/chats/{chat_id}/turns", json={"content": "x"})) == "chat_not_found"
        )


async def test_a_chat_has_bounds(open_arena: OpenArena) -> None:
    async with open_arena(chat_max_turns=2, chat_max_chars=40, max_content_chars=30) as arena:
        await arena.add_two(num_tokens=2)
        path = "/arena/chats"
        long = await arena.client.post(path, json={"model": "alpha", "system_prompt": "x" * 31})
        assert (long.status_code, _code(long)) == (400, "invalid_request")
        chat_id = await _create(arena)
        long = await arena.client.post(f"{path}/{chat_id}/turns", json={"content": "x" * 31})
        assert (long.status_code, _code(long)) == (400, "invalid_request")
        await _ask(arena, chat_id, "x" * 30)
        full = await arena.client.post(f"{path}/{chat_id}/turns", json={"content": "x" * 30})
        assert (full.status_code, _code(full)) == (409, "battle_full")
        await _ask(arena, chat_id, "x")
        full = await arena.client.post(f"{path}/{chat_id}/turns", json={"content": "x"})
        assert (full.status_code, _code(full)) == (409, "battle_full")


@pytest.mark.parametrize("model", ["gamma", "beta"])
async def test_a_model_that_is_not_served_is_refused_by_its_name(arena: Arena, model: str) -> None:
    _, beta = await arena.add_two()
    if model == "beta":
        state = await arena.client.put("/arena/admin/models/beta", json={"is_on": False}, headers=arena.admin)
        assert state.status_code == 200, state.text
        await eventually(lambda: _is_unlisted(arena, "beta"))
    refused = await arena.client.post("/arena/chats", json={"model": model})
    assert (refused.status_code, _code(refused)) == (404, "model_not_found")
    chat_id = await _create(arena)
    refused = await arena.client.post(f"/arena/chats/{chat_id}/turns", json={"content": "x", "model": model})
    assert (refused.status_code, _code(refused)) == (404, "model_not_found")
    assert beta.requests == []


async def test_a_base_model_is_refused_by_its_name(arena: Arena) -> None:
    await arena.add_two()
    base = FakeWorker("base")
    base.chat = "none"
    await arena.add_worker(base)
    refused = await arena.client.post("/arena/chats", json={"model": "base"})
    assert (refused.status_code, _code(refused)) == (400, "not_a_chat_model")
    assert refused.json()["error"]["message"].startswith("base is a base model without a chat template;")
    chat_id = await _create(arena)
    refused = await arena.client.post(f"/arena/chats/{chat_id}/turns", json={"content": "x", "model": "base"})
    assert (refused.status_code, _code(refused)) == (400, "not_a_chat_model")
    assert base.requests == []


async def _is_unlisted(arena: Arena, model: str) -> bool:
    models = (await arena.client.get("/v1/models")).json()["data"]
    return model not in [one["id"] for one in models]


async def test_a_refused_question_leaves_the_chat_as_it_was(arena: Arena) -> None:
    alpha, _ = await arena.add_two()
    chat_id = await _create(arena)
    alpha.refusal = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "Too long.")
    refused = await arena.client.post(f"/arena/chats/{chat_id}/turns", json={"content": "x"})
    assert (refused.status_code, _code(refused)) == (400, "context_length_exceeded")
    assert (await _view(arena, chat_id))["turns"] == []


async def test_nothing_of_a_chat_is_a_battle(arena: Arena) -> None:
    await arena.add_two()
    chat_id = await _create(arena)
    await _ask(arena, chat_id)
    assert (await arena.client.get(f"/arena/battles/{chat_id}")).status_code == 404
    assert (await arena.vote(chat_id)).status_code == 404
    assert (await arena.client.get("/arena/history")).json()["battles"] == []
    assert await arena.vote_log() == []


async def test_a_chat_begins_once_the_terms_are_accepted(open_arena: OpenArena) -> None:
    async with open_arena() as arena:
        await arena.add_two()
        put = await arena.client.put("/arena/admin/terms", json={"text": "Be kind."}, headers=arena.admin)
        assert put.status_code == 200, put.text
        refused = await arena.client.post("/arena/chats", json={"model": "alpha"})
        assert (refused.status_code, _code(refused)) == (403, "terms_not_accepted")
