"""Votes in bulk, into and out of an arena that serves visitors meanwhile: rate, memory of the client, `/health`.

The import is killed on its way and started again. It must leave every vote in the log once.
"""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import httpx

from benchmarks.arena.running import ADMIN_TOKEN, BenchArena, Probe, cpu_s, peak_mb
from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store
from controller.store_address import parse_address
from controller.votes.vote_log import VoteLog
from wire.votes import StyleCounts, VotedSide, VoteRecord

NUM_MODELS = 60
NUM_VOTERS = 50_000
_SEED = 13


def write_votes(path: Path, num_votes: int) -> None:
    """A file of votes between models whose strengths are spread over 400 points, with ties and style counts."""
    with open(path, "wb") as file:
        for vote in _votes(num_votes):
            file.write(vote.model_dump_json(exclude_none=True).encode() + b"\n")


def fill_store(arena: BenchArena, source: Path, num_votes: int) -> None:
    """Put the first votes of a file of `write_votes` into the log without a controller, for measurements of boards
    alone; goes on after the votes that the log has."""
    with open(source, "rb") as file:
        asyncio.run(_append_all(arena, file, num_votes))


async def _append_all(arena: BenchArena, file: IO[bytes], num_votes: int) -> None:
    store = Store(parse_address(arena.store_url), timeout_s=60, metrics=Metrics())
    log = VoteLog(store, Keys("agon:v1"))
    num_there = (await log.state(count=1)).length
    lines = islice(file, num_there, max(num_there, num_votes))
    while batch := [VoteRecord.model_validate_json(line) for line in islice(lines, 1000)]:
        await log.append_foreign(batch)
    await store.close()


async def measure_import(arena: BenchArena, source: Path, num_votes: int, *, kill: bool) -> list[dict[str, Any]]:
    """Import `source` by `agon votes import`; with `kill` the command is killed at a third and run again. What an
    earlier run has imported is passed over and does not count in the rate."""
    health = Probe(arena, "/health", every_s=0.05, address="198.51.100.1")
    board = Probe(arena, "/arena/leaderboard", every_s=0.5, address="198.51.100.2")
    num_before = await num_votes_on_board(arena)
    assert arena.controller is not None
    cpu_before_s = cpu_s(arena.controller.pid)
    num_new = num_votes - num_before
    probes = [asyncio.create_task(probe.run()) for probe in (health, board)]
    began = time.monotonic()
    peak = 0.0
    if kill:
        peak = await _run_import(arena, source, stop_at=num_before + num_new // 3)
    peak = max(peak, await _run_import(arena, source))
    taken_s = time.monotonic() - began
    used_s = cpu_s(arena.controller.pid) - cpu_before_s
    for probe in probes:
        probe.cancel()
    return [
        {
            "name": "import",
            "votes": num_votes,
            "votes_before": num_before,
            "votes_in_log": await num_votes_on_board(arena, at_least=num_votes),
            "was_killed": kill,
            "seconds": round(taken_s, 1),
            "votes_per_s": round(num_new / taken_s),
            "client_peak_mb": peak,
            "controller_peak_mb": peak_mb(arena.controller.pid),
            "controller_cpu_us_per_vote": round(used_s / num_new * 1e6, 1),
        },
        {"name": "health during the import", **health.row()},
        {"name": "board during the import", **board.row()},
    ]


async def measure_export(arena: BenchArena, target: Path) -> list[dict[str, Any]]:
    """Export the whole log by `agon votes export`."""
    health = Probe(arena, "/health", every_s=0.05, address="198.51.100.1")
    probe = asyncio.create_task(health.run())
    began = time.monotonic()
    process = _agon(arena, "export", "-o", str(target))
    peak = await _peak_of(process)
    taken_s = time.monotonic() - began
    probe.cancel()
    row = {"name": f"export to {target.suffix}", "seconds": round(taken_s, 1), "client_peak_mb": peak}
    return [
        {**row, "bytes": _size(target), "exit_code": process.returncode},
        {"name": f"health during the export to {target.suffix}", **health.row()},
    ]


async def _run_import(arena: BenchArena, source: Path, *, stop_at: int | None = None) -> float:
    """Returns the client's largest resident size in MB."""
    process = _agon(arena, "import", str(source))
    if stop_at is None:
        peak = await _peak_of(process)
        if process.returncode:
            raise RuntimeError("the import failed")
        return peak
    while process.poll() is None and _num_sent(source) < stop_at:  # noqa: ASYNC110 - it is another process
        await asyncio.sleep(0.5)
    peak = peak_mb(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return peak


def _num_sent(source: Path) -> int:
    """Lines that the import's bookmark says are in the log."""
    try:
        sent: int = json.loads(source.with_name(source.name + ".import").read_bytes())["position"]["num_read"]
        return sent
    except OSError:
        return 0


def _size(path: Path) -> int:
    return path.stat().st_size


def _agon(arena: BenchArena, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "cli.main", "votes", *arguments]
    return subprocess.Popen(command, env=arena.client_environment())


async def _peak_of(process: subprocess.Popen[bytes]) -> float:
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, peak_mb(process.pid))
        await asyncio.sleep(0.1)
    return peak


async def num_votes_on_board(arena: BenchArena, *, at_least: int = 0) -> int:
    """Votes, rated or not, that the board is about, once there are `at_least` so many."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with httpx.AsyncClient(base_url=arena.url, headers=headers, trust_env=False, timeout=300) as client:
        while True:
            answer = await client.get("/arena/leaderboard")
            if answer.status_code == 200:
                board = answer.json()
                found = int(board["num_votes"] + board["num_unrated"])  # the judge flags one voter in some thousands
                if found >= at_least:
                    return found
            await asyncio.sleep(0.5)


def _votes(num_votes: int) -> Iterator[VoteRecord]:
    draw = random.Random(_SEED)
    strengths = [draw.uniform(-1.15, 1.15) for _ in range(NUM_MODELS)]  # 400 points are 2.3 on the natural scale
    for number in range(num_votes):
        a, b = draw.sample(range(NUM_MODELS), 2)
        noise = draw.random()
        beats = 1 / (1 + 2.718281828 ** (strengths[b] - strengths[a]))
        outcome = "tie" if draw.random() < 0.2 else "both_bad" if draw.random() < 0.1 else "a" if noise < beats else "b"
        yield VoteRecord.model_validate(
            {
                "vote_id": f"0-{number + 1}",
                "battle_id": f"bulk-{number}",
                "time": 1_700_000_000.0 + 10 * number,
                "mode": "anonymous",
                "outcome": outcome,
                "a": _side(a, draw),
                "b": _side(b, draw),
                "probability": 2 / (NUM_MODELS * (NUM_MODELS - 1)),
                "voter": f"{draw.randrange(NUM_VOTERS):016x}",
                "prompt": f"{draw.getrandbits(64):016x}",
            }
        )


def _side(model: int, draw: random.Random) -> VotedSide:
    style = StyleCounts(
        tokens=draw.randrange(20, 900), headers=draw.randrange(4), lists=draw.randrange(12), bold=draw.randrange(9)
    )
    return VotedSide(model=f"model-{model:02}", revision="0123456789abcdef", style=style, finish_reason="stop")
