"""Faults of the store's files: everything gone, the log damaged, the disk full."""

import asyncio
import contextlib
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from redis.asyncio import Redis

from tests.faults.kills import note
from tests.faults.run import Run

_START_S = 10.0


async def wipe_store(run: Run) -> None:
    """FLUSHALL, or the store killed and started without its files. Acknowledged votes must be there afterwards."""
    async with run.load(6):
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0.2, 0.8))
            if rng.random() < 0.6:
                run.tally.count("wiped_by_flushall")
                redis = Redis.from_url(run.arena.embedded.url)
                wiped_at = time.monotonic()
                await redis.flushall()
                await redis.aclose()
            else:
                run.tally.count("wiped_by_deletion")
                wiped_at = await run.arena.store.kill()
                shutil.rmtree(_log_folder(run))
                run.arena.store.start()
            note(run.tally.recovery_s, await run.recovery(wiped_at))
            await run.arena.wait_workers_again()
    await run.audit()


async def damage_log(run: Run) -> None:
    """The store is killed, its log is damaged, and it is started as `agon up` starts it, repaired if that refuses."""
    async with run.load(6):
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0.2, 0.6))
            killed_at = await run.arena.store.kill()
            run.tally.count(f"damaged_{_damage(_log_folder(run), rng)}")
            if not await _start_store(run):
                run.tally.count("starts_refused")
                await _repair(run)
                assert await _start_store(run), run.arena.store.tail()
            note(run.tally.recovery_s, await run.recovery(killed_at))
    await run.audit()


async def fill_disk(run: Run) -> None:
    """The file system of the data directory has no room for some seconds. Votes are refused then, none is acknowledged
    and lost, and the arena takes votes again by itself when there is room. The store is started again as often as its
    supervisor would."""
    ballast = run.arena.folder / "data" / "ballast"
    async with run.load(6):
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0.5, 1.5))
            _fill(ballast)
            full_until = time.monotonic() + rng.uniform(1.0, 6.0)
            while time.monotonic() < full_until:
                await _revive_store(run)
                await asyncio.sleep(0.2)
            ballast.unlink()
            room_at = time.monotonic()
            while not await run.arena.store.is_ready():
                assert time.monotonic() < room_at + 30, run.arena.store.tail()
                await _revive_store(run)
                await asyncio.sleep(0.2)
            note(run.tally.recovery_s, await run.recovery(room_at))
    await run.audit()


@contextlib.contextmanager
def small_file_system(folder: Path) -> Iterator[None]:
    """A file system of 96 MB in memory at `folder`. Needs root."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def _revive_store(run: Run) -> None:
    if not run.arena.store.is_alive:
        run.tally.count("store_ended_full")
        run.arena.store.start()


def _fill(ballast: Path) -> None:
    """Take all room that is left."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(65_536)):
                pass
        except OSError:
            pass


def _log_folder(run: Run) -> Path:
    return run.arena.embedded.folder / "appendonlydir"


def _damage(folder: Path, rng: random.Random) -> str:
    """Damage the newest log file in one of five ways; returns which."""
    path = max(folder.glob("*.incr.aof"), key=lambda file: int(file.name.split(".")[-3]))
    data = path.read_bytes()
    kind = rng.choice(("tail_cut", "cut_anywhere", "bits_flipped", "zero_tail", "middle_cut"))
    if not data:
        return f"{kind}_of_nothing"
    match kind:
        case "tail_cut":
            data = data[: -rng.randint(1, min(4096, len(data)))]
        case "cut_anywhere":
            data = data[: rng.randrange(len(data))]
        case "bits_flipped":
            changed = bytearray(data)
            for _ in range(rng.randint(1, 8)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            data = bytes(changed)
        case "zero_tail":
            data += bytes(rng.randint(1, 4096))
        case "middle_cut":
            start = rng.randrange(len(data))
            data = data[:start] + data[start + rng.randint(1, 4096) :]
    path.write_bytes(data)
    return kind


async def _start_store(run: Run) -> bool:
    """Start the store as its supervisor does; False if the start was refused."""
    store = run.arena.store
    try:
        store.start()
        await store.wait_ready(_START_S)
    except Exception:
        if store.is_alive:
            await store.kill()
        return False
    return True


async def _repair(run: Run) -> None:
    """What an operator does after a refused start."""
    shutil.rmtree(_log_folder(run))
