import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from model_worker.echo_engine import EchoEngine

Serve = Callable[..., Any]

MESSAGES = [{"role": "user", "content": "one two three four"}]


async def generate(served: Any, read_events: Any, **changes: Any) -> list[tuple[str, dict[str, Any]]]:
    body = {"request_id": "r-1", "messages": MESSAGES, **changes}
    async with served.client.stream("POST", "/internal/generate", json=body) as response:
        assert response.status_code == 200, await response.aread()
        return [(event.event, json.loads(event.data)) async for event in read_events(response)]


def token_ids(events: list[tuple[str, dict[str, Any]]]) -> list[int]:
    return [token_id for name, data in events if name == "delta" for token_id in data["token_ids"]]


async def test_stream_is_deltas_in_sequence_and_then_finished(serve: Serve, read_events: Any) -> None:
    async with serve() as served:
        events = await generate(served, read_events)
    assert [name for name, _ in events] == ["delta"] * 4 + ["finished"]
    assert [data["seq"] for _, data in events[:-1]] == [0, 1, 2, 3]
    assert "".join(data["text"] for _, data in events[:-1]) == "one two three four"
    assert events[-1][1]["finish_reason"] == "stop"
    assert events[-1][1]["usage"]["completion_tokens"] == 4


async def test_failure_in_mid_stream_is_one_failed_event(serve: Serve, read_events: Any) -> None:
    async with serve(EchoEngine(tokens_per_s=5000, fail_after=2)) as served:
        events = await generate(served, read_events)
    assert [name for name, _ in events] == ["delta", "delta", "failed"]
    assert events[-1][1]["error"]["code"] == "worker_failed"


@pytest.mark.parametrize("num_emitted", [1, 3, 4])
async def test_another_replica_goes_on_exactly(serve: Serve, read_events: Any, num_emitted: int) -> None:
    async with serve() as first, serve() as second:
        whole = await generate(first, read_events)
        rest = await generate(second, read_events, resume_token_ids=token_ids(whole)[:num_emitted])
    assert token_ids(whole)[:num_emitted] + token_ids(rest) == token_ids(whole)
    ends = [(name, data | {"queue_s": None}) for name, data in (rest[-1], whole[-1])]
    assert ends[0] == ends[1]


async def test_plain_prompt_is_continued(serve: Serve, read_events: Any) -> None:
    async with serve() as served:
        events = await generate(served, read_events, messages=None, prompt="once upon a time")
    assert "".join(data.get("text", "") for _, data in events) == "once upon a time"


async def test_only_the_registered_epoch_is_served(serve: Serve, read_events: Any) -> None:
    async with serve() as served:
        stale = await served.client.post("/internal/generate", json={"request_id": "r", "epoch": 7, "prompt": "x"})
        assert (stale.status_code, stale.json()["error"]["code"]) == (409, "stale_epoch")
        served.worker.epochs = frozenset({7})
        assert (await generate(served, read_events, epoch=7))[-1][0] == "finished"
        stale = await served.client.post("/internal/generate", json={"request_id": "r", "epoch": 6, "prompt": "x"})
        assert stale.status_code == 409


async def test_refusals_have_a_status_of_their_own(serve: Serve) -> None:
    async with serve() as served:
        served.worker.begin_draining()
        answer = await served.client.post("/internal/generate", json={"request_id": "r", "prompt": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert "retry-after" in answer.headers


async def test_pool_shows_pages_by_layer_type(serve: Serve) -> None:
    async with serve() as served:
        view = (await served.client.get("/internal/pool")).json()
    assert view["pages"][0]["layer_type"] == "echo"
    assert view["kv_bytes_total"] > 0
    assert view["picture"] is None, "the echo engine's pages are numbers only"


async def test_same_request_id_twice_at_once_disturbs_nothing(serve: Serve, read_events: Any) -> None:
    async with serve(EchoEngine(tokens_per_s=200)) as served:
        first, second = await asyncio.gather(generate(served, read_events), generate(served, read_events))
    assert first[-1][0] == second[-1][0] == "finished"


async def test_wrong_token_is_refused_before_the_body_is_read(serve: Serve) -> None:
    async with serve() as served, httpx.AsyncClient(base_url=served.url, trust_env=False) as stranger:
        answer = await stranger.post("/internal/generate", content=b"not even JSON")
    assert answer.status_code == 401
