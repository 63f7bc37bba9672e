"""Hosted models in a running arena: a second `agon serve` as a contestant, and hosts that misbehave."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from cli.arena.data_dir import DataDir
from cli.arena.embedded_redis import EmbeddedRedis, find_binary
from tests.e2e.arena import UpProcess, arena, free_ports, take_turn
from tests.mock_host import MockHost, mock_host

KEY = "sk-3f1c9a77e2-of-the-hosted-model"
WRONG_KEY = "sk-wrong-5512ab"
#: A model of the mock host for each way to misbehave; for silent ones, tests/model_worker/test_hosts.py.
MISBEHAVING = ("cut", "garbage", "429", "500", "404", "no-usage", "empty", "redirect", "no-done", "401", "endless")
ANSWERING = {"no-usage", "no-done"}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, echo_flags: list[str]) -> Iterator[UpProcess]:
    """An arena whose `agon up` has the keys in its environment."""
    folder = tmp_path_factory.mktemp("hosted") / "data"
    flags = [word for word in echo_flags if not word.startswith("right=")]
    flags = flags[: flags.index("--model") + 2]
    keys = {"SECOND_SERVER_KEY": KEY, "WRONG_SERVER_KEY": WRONG_KEY}
    with arena(folder, flags, 1, AGON_ECHO_TOKENS_PER_S="500", **keys) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def second_server() -> Iterator[str]:
    """URL of an `agon serve` with a key."""
    port = free_ports(0).controller
    command = [sys.executable, "-P", "-m", "cli.main", "serve", "far", "--engine", "echo", "--port", str(port)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("AGON_")}
    with subprocess.Popen(command, env={**own, "AGON_API_KEYS": KEY}, stderr=subprocess.DEVNULL) as process:
        try:
            _await_ready(f"http://127.0.0.1:{port}/ready")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


@pytest.fixture
def http(up: UpProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=up.controller_url, trust_env=False, timeout=60) as client:
        yield client


def test_a_second_server_is_a_contestant_and_its_key_is_nowhere(
    up: UpProcess, http: httpx.Client, second_server: str
) -> None:
    said = agon_models(up, "add", f"hosted=openai:far@{second_server}", "--key-env", "SECOND_SERVER_KEY")
    assert "hosted is served, by another server" in said
    up.wait_workers("hosted")
    assert "hosted" in battle(http)
    killed_at = time.monotonic()
    pid = up.kill("left")  # the one worker process: what was added is there after a restart
    up.wait_replaced("left", pid)
    up.wait_workers("left", "hosted", heard_since=killed_at + 1)
    assert "hosted" in battle(http)

    agon_models(up, "add", f"wrong=openai:far@{second_server}", "--key-env", "WRONG_SERVER_KEY")
    up.wait_workers("wrong")
    refused = ask(http, "wrong")
    assert (refused.status_code, refused.json()["error"]["code"]) == (502, "worker_failed")
    assert "the host refuses the key (401)" in agon_models(up, "list", "--json")
    deadline = time.monotonic() + 20
    while ask(http, "wrong").status_code != 503:  # closed, and drawn no more
        assert time.monotonic() < deadline
        time.sleep(0.1)
    causes = http.get("/arena/admin/failures", headers=admin(up)).json()["failures"]
    assert any(row["cause"] == "worker_failed: status_401" and row["model"] == "wrong" for row in causes)
    for _ in range(3):
        assert battle(http) == {"left", "hosted"}

    places = {str(path): path.read_bytes() for path in up.data_dir.parent.rglob("*") if path.is_file()}
    assert any(path.endswith("models.json") for path in places)
    places["store"] = store_content(up)
    assert b"hosted" in places["store"]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            places[str(path)] = path.read_bytes()
        except OSError:
            continue
    worker = next(row["url"] for row in served(up))
    places["metrics"] = http.get("/metrics", headers=admin(up)).content
    token = {"Authorization": f"Bearer {secrets_of(up)['worker_token']}"}
    places["worker metrics"] = httpx.get(f"{worker}/metrics", headers=token, trust_env=False).content
    assert b'agon_host_failures_total{model_name="wrong",reason="status_401",status="401"}' in places["worker metrics"]
    for role in ("controller", "webui", "store"):  # only the worker needs the keys
        pid = up.children()[role]
        places[f"environment of {role}"] = Path(f"/proc/{pid}/environ").read_bytes()
    found = [place for place, content in places.items() if KEY.encode() in content or WRONG_KEY.encode() in content]
    assert found == []


def test_battles_go_on_whatever_hosts_do(up: UpProcess, http: httpx.Client) -> None:
    with in_thread() as host:
        for name in MISBEHAVING:
            body = {"name": f"m-{name}", "source": f"openai:{name}@{host.url}"}
            answer = http.post("/arena/admin/served", json=body, headers=admin(up))
            assert answer.status_code == 202, answer.text
        up.wait_workers(*(f"m-{name}" for name in MISBEHAVING))
        failures = {name: ask(http, f"m-{name}") for name in MISBEHAVING}
        for name, answer in failures.items():
            if name in ANSWERING:
                assert answer.json()["choices"][0]["message"]["content"] == "hello there"
                assert answer.json()["usage"]["estimated"] is True
            else:
                assert answer.json()["error"]["code"] in ("worker_failed", "queue_full", "worker_timeout"), name
                assert "secret-model" not in answer.text
        for _ in range(4):
            began = http.post("/arena/battles", json={"mode": "anonymous"})
            assert began.status_code == 201, began.text
            events = list(take_turn(http, began.json()["id"], "one two three"))
            assert events[-1][0] == "turn_finished"
            ends = {event["side"]: name for name, event in events if name in ("finished", "failed")}
            is_refused = not events[-1][1].get("is_kept", True)  # one side's refusal ends such a turn
            assert ends.keys() == {"a", "b"} or (is_refused and "failed" in ends.values())
            codes = {event["error"]["code"] for name, event in events if name == "failed"}
            assert codes <= {"worker_failed", "queue_full", "worker_timeout", "no_worker_available"}
            assert "secret-model" not in json.dumps(events)
        for name in MISBEHAVING:
            act = {"name": f"m-{name}", "action": "remove"}
            assert http.post("/arena/admin/served/act", json=act, headers=admin(up)).status_code == 200


def agon_models(up: UpProcess, *words: str) -> str:
    command = [sys.executable, "-P", "-m", "cli.main", "models", *words, "--data-dir", str(up.data_dir)]
    run = subprocess.run(command, env=up.environment, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def battle(http: httpx.Client) -> set[str]:
    """The models of a battle of one turn, after its vote."""
    began = http.post("/arena/battles", json={"mode": "anonymous"})
    assert began.status_code == 201, began.text
    battle_id = began.json()["id"]
    events = list(take_turn(http, battle_id, "one two three"))
    assert [name for name, _ in events].count("finished") == 2, events
    revealed = http.post(f"/arena/battles/{battle_id}/vote", json={"outcome": "tie"})
    assert revealed.status_code == 200, revealed.text
    return set(revealed.json()["models"].values())


def ask(http: httpx.Client, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 64}
    return http.post("/v1/chat/completions", json=body)


def served(up: UpProcess) -> list[dict[str, Any]]:
    answer = httpx.get(f"{up.controller_url}/arena/admin/served", headers=admin(up), trust_env=False)
    rows: list[dict[str, Any]] = answer.json()["processes"]
    return rows


def store_content(up: UpProcess) -> bytes:
    """All keys and values of the arena's store, uncompressed."""
    store = EmbeddedRedis(DataDir(up.data_dir).store, find_binary())
    read: dict[str, Callable[[Redis, bytes], Any]] = {
        "string": lambda redis, key: redis.get(key),
        "hash": lambda redis, key: redis.hgetall(key),
        "set": lambda redis, key: redis.smembers(key),
        "zset": lambda redis, key: redis.zrange(key, 0, -1),
        "list": lambda redis, key: redis.lrange(key, 0, -1),
        "stream": lambda redis, key: redis.xrange(key),
    }
    with Redis.from_url(store.url) as redis:
        names = [(key, redis.type(key).decode()) for key in redis.scan_iter(count=1000)]
        return repr([(key, read[kind](redis, key)) for key, kind in names if kind != "none"]).encode()


def admin(up: UpProcess) -> dict[str, str]:
    return {"Authorization": f"Bearer {secrets_of(up)['admin_token']}"}


def secrets_of(up: UpProcess) -> dict[str, str]:
    values: dict[str, str] = json.loads((up.data_dir / "secrets.json").read_text())
    return values


@contextmanager
def in_thread() -> Iterator[MockHost]:
    """A mock host in a thread of its own."""
    ready, found = threading.Event(), []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with mock_host() as host:
            found.append(host)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def _await_ready(url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{url} is not ready")
