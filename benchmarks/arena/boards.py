"""Boards of a log of millions of votes: how long visitors wait while one of them asks for a hundred style boards, and
how long a controller that starts again takes to its first board."""

import asyncio
import time
from typing import Any

import httpx

from benchmarks.arena.running import PROXY_TOKEN, BenchArena, Probe, cpu_s
from cli.bench.record import percentile
from wire.proxies import PROXY_TOKEN_HEADER

NUM_STYLE_BOARDS = 100
NUM_VISITORS = 8
LONGEST_S = 90.0  #: others are watched for so long; the style boards that are not answered by then are dropped


async def measure_crowd(arena: BenchArena) -> list[dict[str, Any]]:
    """One visitor asks for a hundred style boards with different parameters at once; others look at theirs."""
    others = [
        Probe(
            arena,
            f"/arena/leaderboard?min_votes={30 + number}",  # one that nobody else asks for
            every_s=1.0,
            address=f"198.51.100.{10 + number}",
        )
        for number in range(NUM_VISITORS)
    ]
    health = Probe(arena, "/health", every_s=0.05, address="198.51.100.1")
    probes = [asyncio.create_task(probe.run()) for probe in (health, *others)]
    await asyncio.sleep(5)
    alone = [len(probe.times_s) for probe in others]
    began = time.monotonic()
    waits_s, num_refused = await _ask_for_style_boards(arena)
    taken_s = time.monotonic() - began
    for probe in probes:
        probe.cancel()
    before = [wait for probe, count in zip(others, alone, strict=True) for wait in probe.times_s[:count]]
    during = [wait for probe, count in zip(others, alone, strict=True) for wait in probe.times_s[count:]]
    return [
        {"name": "boards of others before", "visitors": NUM_VISITORS, **_waits(before)},
        {
            "name": "boards of others while one visitor asks for style boards",
            "visitors": NUM_VISITORS,
            "failures": sum(probe.num_failures for probe in others),
            **_waits(during),
        },
        {
            "name": "the style boards themselves",
            "asked": NUM_STYLE_BOARDS,
            "refused": num_refused,
            "seconds": round(taken_s, 1),
            **_waits(waits_s),
        },
        {"name": "health meanwhile", **health.row()},
    ]


def measure_restart(arena: BenchArena, num_votes: int) -> list[dict[str, Any]]:
    """Stop the controller, start it, and ask for the board; then the store, too."""
    arena.stop_controller()
    first_s = arena.start_controller("/arena/leaderboard")
    assert arena.controller is not None
    first_cpu_s = cpu_s(arena.controller.pid)
    board = httpx.get(f"{arena.url}/arena/leaderboard", trust_env=False, timeout=60).json()
    listening_s = _start_without_board(arena)
    arena.stop()
    store_s = arena.start_store()
    after_store_s = arena.start_controller("/arena/leaderboard")
    return [
        {
            "name": "restart",
            "votes": num_votes,
            "votes_on_board": board["num_votes"] + board["num_unrated"],
            "controller_to_first_board_s": round(first_s, 2),
            "controller_cpu_to_first_board_s": round(first_cpu_s, 2),
            "controller_to_health_s": round(listening_s, 2),
            "store_s": round(store_s, 2),
            "controller_after_store_to_first_board_s": round(after_store_s, 2),
        }
    ]


def _start_without_board(arena: BenchArena) -> float:
    arena.stop_controller()
    return arena.start_controller("/health")


async def _ask_for_style_boards(arena: BenchArena) -> tuple[list[float], int]:
    """How long the boards took that were answered in time, and how many were refused: 503, while the store is slow."""
    headers = {"X-Forwarded-For": "203.0.113.7", PROXY_TOKEN_HEADER: PROXY_TOKEN}
    limits = httpx.Limits(max_connections=NUM_STYLE_BOARDS)
    async with httpx.AsyncClient(
        base_url=arena.url, headers=headers, trust_env=False, timeout=600, limits=limits
    ) as client:

        async def ask(number: int) -> float | None:
            began = time.monotonic()
            query = {"style_control": "true", "min_votes": str(number)}
            answer = await client.get("/arena/leaderboard", params=query)
            return time.monotonic() - began if answer.status_code == 200 else None

        asked = [asyncio.create_task(ask(number)) for number in range(NUM_STYLE_BOARDS)]
        done, late = await asyncio.wait(asked, timeout=LONGEST_S)
        for task in late:
            task.cancel()
        waits_s = [wait_s for task in done if (wait_s := task.result()) is not None]
        return waits_s, len(done) - len(waits_s)


def _waits(waits_s: list[float]) -> dict[str, float]:
    percents = (50, 95, 99) if waits_s else ()
    row = {f"p{percent}_ms": round(percentile(waits_s, percent) * 1000, 1) for percent in percents}
    return {"answers": len(waits_s), **row}
