"""The headers x-ratelimit-* of answers that count in a limit, and of no others."""

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from controller.access.rate_headers import duration
from tests.controller.support.arena import Arena, visitor
from tests.controller.support.fake_worker import FakeWorker

HELLO = {"model": "alpha", "messages": [{"role": "user", "content": "hello"}]}
#: Routes that count, each with a body.
ROUTES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", HELLO),
    ("/v1/chat/completions", {**HELLO, "stream": True}),
    ("/v1/completions", {"model": "alpha", "prompt": "hello"}),
    ("/v1/responses", {"model": "alpha", "input": "hello", "stream": True}),
    ("/v1/messages", {**HELLO, "max_tokens": 5, "stream": True}),
    ("/tokenize", {"model": "alpha", "prompt": "hello"}),
)


def limits(answer: httpx.Response) -> dict[str, str]:
    prefix = "x-ratelimit-"
    return {name.removeprefix(prefix): value for name, value in answer.headers.items() if name.startswith(prefix)}


async def post(arena: Arena, path: str, body: dict[str, Any], address: str = "203.0.113.1") -> httpx.Response:
    return await arena.client.post(path, json=body, headers=visitor(address))


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (119_001, "120ms"),
        (1_000_000, "1s"),
        (1_200_000, "1.2s"),
        (59_999_999, "1m0s"),
        (86_400_000, "1m26.4s"),
        (7_205_000_000, "2h0m5s"),
    ],
)
def test_times_are_written_as_openai_writes_them(us: int, text: str) -> None:
    assert duration(us) == text


async def test_every_route_that_counts_says_what_remains_streamed_or_not(open_arena: Any) -> None:
    async with open_arena(rate_per_minute=1, rate_burst=len(ROUTES)) as arena:
        await arena.add_worker(FakeWorker("alpha"))

        for count, (path, body) in enumerate(ROUTES, 1):
            answer = await post(arena, path, body)
            assert answer.status_code == 200, answer.text
            assert limits(answer)["limit-requests"] == str(len(ROUTES))
            assert limits(answer)["remaining-requests"] == str(len(ROUTES) - count), path
            minutes = re.fullmatch(r"(?:(\d+)m)?[0-9.]+m?s", limits(answer)["reset-requests"])
            assert minutes is not None
            assert int(minutes[1] or 0) in (count - 1, count)


async def test_a_refusal_says_so_too_and_keeps_retry_after(open_arena: Any) -> None:
    async with open_arena(rate_per_minute=1, rate_burst=1) as arena:
        await arena.add_worker(FakeWorker("alpha"))
        await post(arena, *ROUTES[0])

        for path, body in ROUTES:
            refused = await post(arena, path, body)
            assert refused.status_code == 429, path
            assert 30 <= int(refused.headers["retry-after"]) <= 60
            assert limits(refused)["limit-requests"] == "1"
            assert limits(refused)["remaining-requests"] == "0"
            assert re.fullmatch(r"59(\.\d+)?s|1m0s|5\d(\.\d+)?s", limits(refused)["reset-requests"])

        assert (await post(arena, *ROUTES[0], "203.0.113.2")).status_code == 200, "a bucket of its own"


async def test_what_remains_grows_again_with_time(open_arena: Any) -> None:
    async with open_arena(rate_per_minute=600, rate_burst=3) as arena:
        await arena.add_worker(FakeWorker("alpha"))
        for _ in range(3):
            await post(arena, *ROUTES[-1])

        await asyncio.sleep(0.5)

        answer = limits(await post(arena, *ROUTES[-1]))
        assert answer["remaining-requests"] == "2"
        assert answer["reset-requests"] == "100ms"


async def test_prompts_of_a_list_count_each(open_arena: Any) -> None:
    async with open_arena(rate_per_minute=1, rate_burst=5) as arena:
        await arena.add_worker(FakeWorker("alpha"))

        answer = await post(arena, "/v1/completions", {"model": "alpha", "prompt": ["a", "b", "c"]})

        assert limits(answer)["remaining-requests"] == "2"


async def test_answers_that_count_nowhere_have_no_such_header(open_arena: Any) -> None:
    async with open_arena(rate_per_minute=1, rate_burst=3) as arena:
        await arena.add_worker(FakeWorker("alpha"))

        for answer in (
            await arena.client.get("/v1/models", headers=visitor("203.0.113.1")),
            await post(arena, "/v1/chat/completions", {**HELLO, "model": "gone"}),
            await post(arena, "/v1/chat/completions", {**HELLO, "audio": {"voice": "a"}}),
        ):
            assert not limits(answer), answer.text


async def test_a_full_worker_is_told_apart_from_a_full_bucket(open_arena: Any) -> None:
    """The request that finds no place at a worker counts, and its refusal says what remains."""
    async with open_arena(rate_per_minute=1, rate_burst=3) as arena:
        worker = await arena.add_worker(FakeWorker("alpha"))
        in_a_minute_ms = (int((await arena.redis.time())[0]) + 20) * 1000
        places = {f"chat-{number}": in_a_minute_ms for number in range(1000)}
        await arena.redis.zadd(arena.keys.leases(worker.worker_id), places)

        refused = await post(arena, "/v1/chat/completions", HELLO)

        assert (refused.status_code, json.loads(refused.text)["error"]["code"]) == (503, "queue_full")
        assert limits(refused)["remaining-requests"] == "2"
