"""Failover as a client of the OpenAI API sees it, with two replicas of one model."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from controller.workers import relay
from tests.controller.support.arena import Arena, eventually
from tests.controller.support.fake_worker import FakeWorker, words
from wire.errors import ApiError, Blame, ErrorCode

BODY = {"model": "alpha", "messages": [{"role": "user", "content": "hello"}]}


async def _complete(arena: Arena) -> httpx.Response:
    return await arena.client.post("/v1/chat/completions", json=BODY)


async def _stream(arena: Arena) -> tuple[str, list[Any], bool]:
    """Text, errors, and whether [DONE] came."""
    text, errors, done = "", [], False
    async with arena.client.stream("POST", "/v1/chat/completions", json={**BODY, "stream": True}) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                done = True
            elif line:
                chunk = json.loads(line.removeprefix("data: "))
                if "error" in chunk:
                    errors.append(chunk["error"])
                elif chunk["choices"]:
                    text += chunk["choices"][0]["delta"].get("content", "")
    return text, errors, done


async def _replicas(arena: Arena, **options: Any) -> tuple[FakeWorker, FakeWorker]:
    return (
        await arena.add_worker(FakeWorker("alpha", **options)),
        await arena.add_worker(FakeWorker("alpha", **options)),
    )


async def _register_anew(arena: Arena, worker: FakeWorker) -> None:
    headers = {"Authorization": f"Bearer {worker.token}"}
    async with httpx.AsyncClient(base_url=arena.url, headers=headers, verify=False, trust_env=False) as client:
        await worker._register(client)


async def test_a_failure_before_the_first_token_is_invisible(arena: Arena) -> None:
    bad, _good = await _replicas(arena)
    bad.break_at = 0

    while not bad.requests:  # each draws one of the two
        answer = await _complete(arena)

        assert answer.status_code == 200
        assert answer.json()["choices"][0]["message"]["content"] == words(5)


async def test_a_stream_that_breaks_goes_on_at_the_other_replica_without_a_gap(arena: Arena) -> None:
    one, two = await _replicas(arena, num_tokens=30)
    for break_at in (1, 7, 29):
        one.break_at, num_before = break_at, len(one.requests)
        while len(one.requests) == num_before:  # each draws one of the two
            text, errors, done = await _stream(arena)
            assert (text, errors, done) == (words(30), [], True)
    resumed = [request.resume_token_ids for request in two.requests if request.resume_token_ids]
    assert [len(token_ids) for token_ids in resumed] == [1, 7, 29]


async def test_without_another_replica_a_broken_stream_ends_with_one_error_and_no_done(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    worker.break_at = 3

    text, errors, done = await _stream(arena)

    assert text == words(3)
    assert [error["code"] for error in errors] == ["worker_failed"]
    assert not done


async def test_a_worker_without_token_ids_is_not_resumed_elsewhere(arena: Arena) -> None:
    for _ in range(2):
        worker = FakeWorker("alpha")
        worker.can_resume = False
        worker.break_at = 2
        await arena.add_worker(worker)

    text, errors, _ = await _stream(arena)

    assert text == words(2)
    assert len(errors) == 1


async def test_a_failure_before_the_first_token_has_a_proper_status(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    worker.fail_at = 0

    response = await arena.client.post("/v1/chat/completions", json={**BODY, "stream": True})

    assert response.status_code == 502
    assert response.json()["error"]["code"] == "worker_failed"
    assert "10.1.2.3" not in response.text


async def test_what_a_worker_refuses_is_passed_on_and_never_opens_its_circuit(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    worker.refusal = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "The prompt has 5000 tokens, the model takes 4096.")
    for _ in range(10):
        response = await _complete(arena)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")

    worker.heal()

    assert (await _complete(arena)).status_code == 200


@pytest.mark.parametrize("blame", [Blame.HOST, Blame.WORKER, None])
async def test_failures_that_one_caller_meets_take_no_model_from_the_others(arena: Arena, blame: Blame | None) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    worker.refusal = ApiError(ErrorCode.WORKER_FAILED, "The filter of the model's server said no.", blame=blame)
    for _ in range(10):
        response = await _complete(arena)
        message = "The model's worker failed." if blame is None else worker.refusal.message
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["message"]) == (502, "worker_failed", message)
        assert "blame" not in error

    worker.heal()

    assert (await _complete(arena)).status_code == 200


async def test_a_full_worker_is_passed_over_and_not_blamed(arena: Arena) -> None:
    full, _ = await _replicas(arena)
    full.refusal = ApiError(ErrorCode.QUEUE_FULL, "full")
    for _ in range(32):  # each draws one of the two
        assert (await _complete(arena)).status_code == 200
    assert len(full.requests) > 2  # it was asked again and again


async def test_when_every_worker_is_full_the_client_reads_when_to_come_back(arena: Arena) -> None:
    for worker in await _replicas(arena):
        worker.refusal = ApiError(ErrorCode.QUEUE_FULL, "full")

    response = await _complete(arena)

    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1


async def test_a_worker_that_stands_still_is_left_after_the_token_timeout(open_arena: Any) -> None:
    async with open_arena(token_timeout_s=1.0) as arena:
        one, two = await _replicas(arena, num_tokens=6)
        one.hang_at = 2
        while not one.requests:  # each draws one of the two
            assert await _stream(arena) == (words(6), [], True)
        assert any(request.resume_token_ids for request in two.requests)


async def test_a_replay_waits_for_a_place_at_the_other_replica(open_arena: Any) -> None:
    async with open_arena(replay_wait_s=30.0) as arena:
        one, two = await _replicas(arena, num_tokens=30, max_running=1)
        one.break_at = two.break_at = 7
        leases = [arena.keys.leases(worker.worker_id) for worker in (one, two)]
        stream = asyncio.create_task(_stream(arena))
        one.may_speak.clear()
        two.may_speak.clear()
        await eventually(lambda: one.num_open + two.num_open == 1)
        broken, other = (one, two) if one.num_open else (two, one)
        other.heal()
        await arena.take_place(leases[0 if other is one else 1])
        one.may_speak.set()
        two.may_speak.set()
        await eventually(lambda: broken.num_open == 0)
        await asyncio.sleep(0.5)
        assert other.requests == []

        await arena.redis.delete(leases[0 if other is one else 1])

        assert await stream == (words(30), [], True)


async def test_a_replay_that_a_full_worker_refuses_asks_it_again(open_arena: Any) -> None:
    async with open_arena(replay_wait_s=30.0) as arena:
        one, two = await _replicas(arena, num_tokens=30)
        one.break_at = two.break_at = 7
        one.may_speak.clear()
        two.may_speak.clear()
        stream = asyncio.create_task(_stream(arena))
        await eventually(lambda: one.num_open + two.num_open == 1)
        other = two if one.num_open else one
        other.heal()
        other.refusal = ApiError(ErrorCode.QUEUE_FULL, "full")
        one.may_speak.set()
        two.may_speak.set()
        await eventually(lambda: len(other.requests) >= 4)

        other.heal()

        assert await stream == (words(30), [], True)


async def test_a_half_written_answer_waits_for_its_worker_to_start_again(open_arena: Any) -> None:
    async with open_arena(replay_wait_s=30.0) as arena:
        worker = await arena.add_worker(FakeWorker("alpha", num_tokens=30))
        worker.break_at = 7
        stream = asyncio.create_task(_stream(arena))
        await eventually(lambda: bool(worker.requests) and worker.num_open == 0)

        worker.heal()
        worker.boot_id = "boot-after-a-restart"
        await _register_anew(arena, worker)

        assert await stream == (words(30), [], True)
        assert len(worker.requests[-1].resume_token_ids) == 7


async def test_an_answer_without_a_token_waits_a_moment_for_its_worker_to_start_again(
    open_arena: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "FIRST_WAIT_S", 30.0)
    async with open_arena(replay_wait_s=30.0) as arena:
        worker = await arena.add_worker(FakeWorker("alpha", num_tokens=30))
        worker.break_at = 0
        stream = asyncio.create_task(_stream(arena))
        await eventually(lambda: bool(worker.requests) and worker.num_open == 0)

        worker.heal()
        worker.boot_id = "boot-after-a-restart"
        await _register_anew(arena, worker)

        assert await stream == (words(30), [], True)


async def test_newer_starts_of_workers_use_up_no_attempts(arena: Arena) -> None:
    one, two = await _replicas(arena)
    one.refusal = two.refusal = ApiError(ErrorCode.STALE_EPOCH, "a newer start has registered")
    assert (await _complete(arena)).status_code == 503
    num_asked = len(one.requests) + len(two.requests)

    assert num_asked == arena.settings.max_attempts + 1


async def test_a_worker_that_gives_no_first_token_in_time_is_a_timeout(open_arena: Any) -> None:
    async with open_arena(first_token_timeout_s=0.3) as arena:
        worker = await arena.add_worker(FakeWorker("alpha"))
        worker.hang_at = 0

        response = await _complete(arena)

        assert (response.status_code, response.json()["error"]["code"]) == (504, "worker_timeout")


async def test_a_worker_without_a_registration_is_left_long_before_the_token_timeout(open_arena: Any) -> None:
    async with open_arena(token_timeout_s=120.0, first_token_timeout_s=120.0) as arena:
        one, two = await _replicas(arena, num_tokens=6)
        one.hang_at = two.hang_at = 2
        stream = asyncio.create_task(_stream(arena))
        await eventually(lambda: one.num_open + two.num_open == 1)
        hung, other = (one, two) if one.num_open else (two, one)
        other.heal()
        hung.is_beating = False
        await arena.redis.delete(arena.keys.worker(hung.worker_id))  # as its expiry does

        assert await asyncio.wait_for(stream, 30) == (words(6), [], True)


async def test_a_controller_that_knows_an_old_epoch_asks_again_with_the_new_one(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    behind = await arena.add_controller(table_refresh_s=60.0)

    async def knows() -> bool:
        return len((await behind.get("/v1/models")).json()["data"]) == 1

    await eventually(knows)
    worker.boot_id = "boot-after-a-restart"
    await _register_anew(arena, worker)

    response = await behind.post("/v1/chat/completions", json=BODY)

    assert response.status_code == 200
    assert [request.epoch == worker.epoch for request in worker.requests] == [False, True]


async def test_a_dead_worker_is_found_out_by_the_refused_connection(arena: Arena) -> None:
    dead = FakeWorker("alpha")
    good = await arena.add_worker(FakeWorker("alpha"))
    dead.url, dead.token = "http://127.0.0.1:9", good.token
    await _register_anew(arena, dead)

    answers = [(await _complete(arena)).status_code for _ in range(16)]  # each draws one of the two until it is known

    assert answers == [200] * 16


async def test_a_client_that_leaves_a_stream_aborts_it_at_the_worker(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha", num_tokens=1000, delay_s=0.02))
    async with arena.client.stream("POST", "/v1/chat/completions", json={**BODY, "stream": True}) as response:
        async for _ in response.aiter_lines():
            break

    await eventually(lambda: worker.num_aborted == 1)


async def test_a_client_that_leaves_before_the_answer_aborts_it_at_the_worker(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha", num_tokens=1000, delay_s=0.02))
    with pytest.raises(httpx.ReadTimeout):
        await arena.client.post("/v1/chat/completions", json=BODY, timeout=0.3)

    await eventually(lambda: worker.num_aborted == 1)
    await eventually(lambda: worker.num_open == 0)


async def test_a_client_that_leaves_before_the_first_token_aborts_at_the_worker(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))
    worker.hang_at = 0
    with pytest.raises(httpx.ReadTimeout):
        await arena.client.post("/v1/chat/completions", json={**BODY, "stream": True}, timeout=0.3)

    await eventually(lambda: worker.num_aborted == 1)
