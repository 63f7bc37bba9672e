"""The controller as a process: starts by its command, ends by a signal, dies by kill -9."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from tests.controller.support.arena import ADMIN_TOKEN, WORKER_TOKEN, Arena, eventually, of_kind
from tests.controller.support.fake_worker import FakeWorker, words
from tests.ports import reserved_port
from wire.releases import FORMAT, RELEASE
from wire.sse import SseDecoder, SseEvent


@contextlib.asynccontextmanager
async def _controller(
    arena: Arena, **settings: str
) -> AsyncGenerator[tuple[subprocess.Popen[bytes], httpx.AsyncClient], None]:
    with reserved_port() as port:
        async with _listening_controller(arena, port, settings) as process_and_client:
            yield process_and_client


@contextlib.asynccontextmanager
async def _listening_controller(
    arena: Arena, port: int, settings: dict[str, str]
) -> AsyncGenerator[tuple[subprocess.Popen[bytes], httpx.AsyncClient], None]:
    command = [sys.executable, "-m", "controller", "--port", str(port)]
    environment = _environment(arena) | settings
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", verify=False, trust_env=False, timeout=30
    ) as client:

        async def ready() -> bool:
            assert process.poll() is None
            with contextlib.suppress(httpx.HTTPError):
                return (await client.get("/ready")).status_code == 200
            return False

        try:
            await eventually(ready, timeout_s=60)
            yield process, client
        finally:
            process.kill()
            process.communicate()


def _environment(arena: Arena) -> dict[str, str]:
    return {
        **os.environ,
        "AGON_REDIS_URL": arena.settings.redis_url,
        "AGON_KEY_PREFIX": arena.settings.key_prefix,
        "AGON_WORKER_TOKEN": WORKER_TOKEN,
        "AGON_ADMIN_TOKEN": ADMIN_TOKEN,
    }


@contextlib.asynccontextmanager
async def _echo_worker(arena: Arena, model: str) -> AsyncGenerator[subprocess.Popen[bytes]]:
    """A real worker process, ready and known to the arena."""
    before = len((await arena.client.get("/arena/workers")).json())
    command = [sys.executable, "-m", "model_worker", "--model", model, "--engine", "echo", "--port", "0"]
    environment = {**os.environ, "AGON_WORKER_TOKEN": WORKER_TOKEN}
    with subprocess.Popen([*command, "--controller", arena.url], env=environment, stderr=subprocess.DEVNULL) as process:

        async def is_known() -> bool:
            assert process.poll() is None
            views = (await arena.client.get("/arena/workers", headers=arena.admin)).json()
            return len(views) > before and all(view["load"]["kv_bytes_total"] for view in views)

        try:
            await eventually(is_known, timeout_s=60)
            yield process
        finally:
            process.kill()


def _hello(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}]}


async def test_a_controller_ends_with_2_where_a_newer_release_has_written_the_store(arena: Arena) -> None:
    async with _controller(arena):
        stamped = json.loads(await arena.redis.get(arena.keys.format) or "{}")
    assert stamped == {"format": FORMAT, "release": RELEASE}
    newer = json.dumps({"format": FORMAT + 1, "release": "9.0"})
    await arena.redis.set(arena.keys.format, newer)

    command = [sys.executable, "-m", "controller", "--port", "0"]
    refused = await asyncio.to_thread(
        subprocess.run, command, env=_environment(arena), capture_output=True, text=True, timeout=60
    )

    assert refused.returncode == 2
    assert f"the store is kept in format {FORMAT + 1} by Agon 9.0" in refused.stderr
    assert await arena.redis.get(arena.keys.format) == newer


async def test_a_controller_ends_on_sigterm_and_logs_json(arena: Arena) -> None:
    async with _controller(arena) as (process, _):
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.to_thread(process.communicate, timeout=30)

    assert process.returncode == 0
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines
    assert all({"ts", "level", "event", "logger"} <= set(line) for line in lines)


async def test_a_killed_worker_is_asked_once_and_not_again_although_its_registration_lasts(arena: Arena) -> None:
    living = await arena.add_worker(FakeWorker("alpha"))
    async with _echo_worker(arena, "alpha") as process:
        process.kill()
        process.wait()

        for _ in range(20):
            reply = await arena.client.post("/v1/chat/completions", json=_hello("alpha"))
            assert reply.status_code == 200

    assert len((await arena.client.get("/arena/workers")).json()) == 2, "its registration has not expired"
    assert len(living.requests) == 20
    metrics = (await arena.client.get("/metrics", headers=arena.admin)).text
    [moves] = [line for line in metrics.splitlines() if line.startswith("arena_failovers_total{")] or ["x 0"]
    assert float(moves.rpartition(" ")[2]) <= 1


async def test_a_model_whose_only_worker_was_killed_is_drawn_for_no_battle(arena: Arena) -> None:
    for model in ("alpha", "beta"):
        await arena.add_worker(FakeWorker(model))
    async with _echo_worker(arena, "gamma") as process:
        process.kill()
        process.wait()

        assert (await arena.client.post("/v1/chat/completions", json=_hello("gamma"))).status_code == 502
        views = [await arena.create(mode="anonymous") for _ in range(20)]

    keys = [arena.keys.battle(view["id"]) for view in views]
    sides: list[Any] = [await arena.redis.hget(key, f"side:{side}") for key in keys for side in ("a", "b")]
    assert len((await arena.client.get("/arena/workers")).json()) == 3, "its registration has not expired"
    assert {json.loads(side)["model"] for side in sides} == {"alpha", "beta"}


async def _knows_two_models(client: httpx.AsyncClient) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return (await client.get("/ready")).json()["models"] == 2
    return False


async def _read_until_killed(
    process: subprocess.Popen[bytes], client: httpx.AsyncClient, path: str, num_events: int
) -> list[SseEvent]:
    """The events of a new turn that arrive before its controller is killed, which happens after `num_events`."""
    decoder, events = SseDecoder(), []
    with contextlib.suppress(httpx.HTTPError):
        headers = {"Idempotency-Key": "k1"}
        async with client.stream("POST", path + "/turns", json={"content": "hello"}, headers=headers) as response:
            if num_events == 0:
                process.kill()
            async for part in response.aiter_raw():
                events += decoder.feed(part)
                if len(events) >= num_events:
                    process.kill()
    return events


@pytest.mark.parametrize("num_events", [0, 3, 12])
async def test_a_turn_whose_controller_is_killed_goes_on_at_another(arena: Arena, num_events: int) -> None:
    workers = [await arena.add_worker(FakeWorker(model, num_tokens=100, delay_s=0.02)) for model in ("alpha", "beta")]
    leases: dict[str, Any] = {"AGON_OWNER_LEASE_S": "1", "AGON_SLOT_LEASE_S": "3"}
    async with _controller(arena, **leases) as (process, client):
        await eventually(lambda: _knows_two_models(client))
        created = await client.post("/arena/battles", json={"mode": "anonymous"})
        battle_id = created.json()["id"]
        path = f"/arena/battles/{battle_id}"
        seen = await _read_until_killed(process, client, path, num_events)

    last_id = {"Last-Event-ID": seen[-1].id} if seen and seen[-1].id else {}
    again: dict[str, Any] = {"json": {"content": "hello"}, "headers": {"Idempotency-Key": "k1", **last_id}}
    rest = await arena.events("POST", path + "/turns", **again)

    events = seen + rest
    numbers = [int((event.id or "").removeprefix("1-")) for event in events]
    assert numbers == sorted(set(numbers)), "none twice; events that no client gets leave gaps"
    deltas = [json.loads(event.data) for event in events if event.event == "delta"]
    for side in "ab":
        assert "".join(delta["text"] for delta in deltas if delta["side"] == side) == words(100)
    assert [event.event for event in events if event.event != "delta"] == ["finished", "finished", "turn_finished"]
    assert (await arena.vote(battle_id)).status_code == 200
    await eventually(lambda: sum(worker.num_open for worker in workers) == 0)

    async def leases_have_run_out() -> bool:
        [first, second] = (await arena.client.get("/arena/workers", headers=arena.admin)).json()
        return first["in_flight"] == second["in_flight"] == 0

    await eventually(leases_have_run_out)


async def test_a_controller_that_ends_on_sigterm_tells_its_readers_to_come_back_and_releases_its_turns(
    arena: Arena,
) -> None:
    workers = [await arena.add_worker(FakeWorker(model, num_tokens=200, delay_s=0.3)) for model in ("alpha", "beta")]
    async with _controller(arena, AGON_DRAIN_S="1", AGON_OWNER_LEASE_S="60", AGON_PACED="0") as (process, client):
        await eventually(lambda: _knows_two_models(client))
        created = await client.post("/arena/battles", json={"mode": "anonymous"})
        path = f"/arena/battles/{created.json()['id']}"
        decoder, seen = SseDecoder(), []
        async with client.stream("POST", path + "/turns", json={"content": "hello"}) as response:
            async for part in response.aiter_raw():
                seen += decoder.feed(part)
                if len({json.loads(event.data)["side"] for event in of_kind(seen, "delta")}) == 2:  # both have begun
                    process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.communicate, timeout=30)

    assert process.returncode == 0
    assert json.loads(seen.pop().data)["error"]["code"] == "shutting_down"
    for worker in workers:
        worker.delay_s = 0.0
    rest = await arena.events("GET", path + "/stream", headers={"Last-Event-ID": str(seen[-1].id)})
    events = seen + rest
    assert [event.id for event in events] == [f"1-{n}" for n in range(len(events))]
    assert json.loads(events[-1].data) == {"turn": 1, "state": "answered", "is_kept": True}
    assert all(worker.requests[-1].resume_token_ids for worker in workers)


_SAYS_THREADS = """
import os, sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "numpy":
            print(os.environ.get("OPENBLAS_NUM_THREADS"))
sys.meta_path.insert(0, Finder)
import controller.__main__
"""


def test_boards_are_fitted_without_threads_of_openblas() -> None:
    """A fork stops such threads under a fit that waits for them. The number is read when numpy is loaded."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}

    said = subprocess.run([sys.executable, "-c", _SAYS_THREADS], env=environment, capture_output=True, check=True)

    assert said.stdout.split() == [b"1"]
