"""A run of many cases against one service, and its report as one JSON object."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.case import Case
from tests.fuzz.exchange import Outcome, exchange
from tests.fuzz.maker import BATTLE_PLACE, CHAT_PLACE, Maker
from tests.fuzz.services import Arena

CONNECTIONS = 8
NUM_WARM_UP = 150
PIECE = 100  #: cases between two looks at the probe


@dataclass
class Findings:
    """What a campaign counts; numbers are those of cases, for a replay."""

    statuses: Counter[str] = field(default_factory=Counter)
    server_errors: list[int] = field(default_factory=list)
    hangs: list[int] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    slowest_ms: float = 0.0
    slowest_case: int = -1
    stall_ms: float = 0.0
    stall_cases: tuple[int, int] = (0, 0)  #: the longest stall happened while these were sent
    delay_ms: float = 0.0

    def add(self, number: int, outcome: Outcome) -> None:
        """Count one answer."""
        self.statuses[str(outcome.status or "none")] += 1
        if outcome.is_server_error:
            self.server_errors.append(number)
        if outcome.is_hang:
            self.hangs.append(number)
        if outcome.is_cut:
            self.cuts.append(number)
        if outcome.status is not None and outcome.answer_s * 1000 > self.slowest_ms:
            self.slowest_ms, self.slowest_case = round(outcome.answer_s * 1000, 1), number


async def campaign(arena: Arena, maker: Maker, num_cases: int) -> dict[str, Any]:
    """Send the first `num_cases` cases of `maker`. A hang counts only if the same case hangs when it is sent alone."""
    service = arena.services[maker.target]
    findings, started = Findings(), time.monotonic()
    for number in range(NUM_WARM_UP):  # what is imported or compiled at first use is no stall and no growth
        await exchange(service.port, placed(maker.valid_case(number), arena))
    first = service.ask()
    before = first
    for start in range(0, num_cases, PIECE):
        arena.put_in_service()
        numbers = range(start, min(start + PIECE, num_cases))
        cases = [placed(maker.case(number), arena) for number in numbers]
        free = asyncio.Semaphore(CONNECTIONS)

        async def send(number: int, case: Case, free: asyncio.Semaphore = free) -> None:
            async with free:
                findings.add(number, await exchange(service.port, case))

        await asyncio.gather(*(send(number, case) for number, case in zip(numbers, cases, strict=True)))
        seen = service.ask()
        if start < num_cases // 5:
            before = seen  # caches fill at first
        findings.delay_ms = max(findings.delay_ms, seen["delay_ms"])
        if seen["stall_ms"] > findings.stall_ms:
            findings.stall_ms, findings.stall_cases = seen["stall_ms"], (numbers[0], numbers[-1])
    again = {number: await exchange(service.port, placed(maker.case(number), arena)) for number in findings.hangs}
    status, _ = await asyncio.to_thread(service.request, "GET", "/health")
    after = service.ask()
    return {
        "target": maker.target,
        "seed": maker.seed,
        "requests": num_cases,
        "seconds": round(time.monotonic() - started, 1),
        "statuses": dict(sorted(findings.statuses.items())),
        "server_errors": findings.server_errors,
        "hangs": [number for number, outcome in again.items() if outcome.is_hang],
        "cuts": findings.cuts,
        "slowest_ms": findings.slowest_ms,
        "slowest_case": findings.slowest_case,
        "stall_ms": findings.stall_ms,
        "stall_cases": findings.stall_cases,
        "delay_ms": findings.delay_ms,
        "rss_mb": [before["rss_mb"], after["rss_mb"]],
        "descriptors": [first["descriptors"], after["descriptors"]],
        "tasks": [first["tasks"], after["tasks"]],
        "healthy": status == 200,
    }


def placed(case: Case, arena: Arena) -> Case:
    """`case` with the ids of the arena's battles and chats in their places."""
    pieces = case.pieces
    for place, ids in ((BATTLE_PLACE, arena.battles), (CHAT_PLACE, arena.chats)):
        for number, found in enumerate(ids):
            name = place.format(number).encode()
            pieces = tuple(piece.replace(name, found.encode()) for piece in pieces)
    return Case(case.kind, pieces, case.is_whole)
