"""The audit at the end of a scenario: ledger against the store's log, the export of every controller and the boards.

Before it, everything that is held for a turn must have been given back: leases, pages, the turn itself.
"""

import asyncio
import json
import time
from collections import Counter
from typing import Any

import aiohttp
from redis.asyncio import Redis

from tests.faults.arena import Arena
from tests.faults.ledger import Ledger
from tests.faults.tally import Tally

_QUIET_S = 40.0  #: leases of a killed controller expire after 15 s
_RESTORE_S = 15.0  #: a controller compares log and journal every second, and brings back what is missing
_KEY_PREFIX = "agon:v1"


async def audit(arena: Arena, ledger: Ledger, tally: Tally) -> None:
    """Compare everything; broken promises go to `tally`."""
    await _wait_quiet(arena, tally)
    deadline = time.monotonic() + _RESTORE_S
    while True:
        differences = Differences(ledger)
        logged = await _log_of_store(arena)
        differences.compare("the store", logged)
        exports = [await _export(arena, url, tally) for url in arena.controller_urls]
        for number, export in enumerate(exports):
            rows = [(row["battle_id"], row["outcome"], row["vote_id"]) for row in export]
            differences.compare(f"the export of controller {number}", rows)
        if not differences or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    differences.report(tally)
    await _compare_boards(arena, [sum(1 for row in rows if not row.get("flags")) for rows in exports], tally)
    tally.counts["votes_in_log"] = len(logged)
    tally.counts["votes_acknowledged"] = ledger.num_acknowledged


async def _wait_quiet(arena: Arena, tally: Tally) -> None:
    """Wait until nothing is held: no turn, no lease, no page."""
    deadline = time.monotonic() + _QUIET_S
    held: dict[str, int] = {}
    while time.monotonic() < deadline:
        held = {
            "open turns": await arena.open_turns(),
            "leases": await _num_leases(arena),
            "pages": await arena.used_pages(),
        }
        if not any(held.values()):
            return
        await asyncio.sleep(0.25)
    for name, number in held.items():
        if number:
            tally.break_promise("leaks", f"{number} {name} after {_QUIET_S:.0f} s of quiet", number)


async def _num_leases(arena: Arena) -> int:
    """Capacity leases that have not expired."""
    redis = Redis.from_url(arena.embedded.url, decode_responses=True)
    try:
        seconds, micros = await redis.time()
        now_ms = seconds * 1000 + micros // 1000
        total = 0
        async for key in redis.scan_iter(f"{_KEY_PREFIX}:slots:*"):
            total += int(await redis.zcount(key, now_ms, "+inf"))
        return total
    finally:
        await redis.aclose()


async def _log_of_store(arena: Arena) -> list[tuple[str, str, str]]:
    """Battle, outcome and id of every vote, read without a controller, and like it where a name has been damaged."""
    redis = Redis.from_url(arena.embedded.url, decode_responses=True, encoding_errors="replace")
    try:
        entries: Any = await redis.xrange(f"{_KEY_PREFIX}:votes")
    finally:
        await redis.aclose()
    records = [(json.loads(fields["record"]), entry_id) for entry_id, fields in entries]
    return [(record["battle_id"], record["outcome"], entry_id) for record, entry_id in records]


async def _export(arena: Arena, url: str, tally: Tally) -> list[dict[str, Any]]:
    text = await arena.get_text(f"{url}/arena/votes")
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError:
        tally.break_promise("server_errors", f"export of {url}: {text[:200]}")
        return []


class Differences:
    """Battles whose votes differ from the ledger, in the store or in the export of any controller."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._found: dict[str, dict[str, str]] = {"votes_lost": {}, "votes_doubled": {}, "votes_wrong": {}}

    def __bool__(self) -> bool:
        return any(self._found.values())

    def compare(self, where: str, log: list[tuple[str, str, str]]) -> None:
        """Compare one log: battle, outcome and vote id of each entry."""
        votes = self._ledger.votes
        found = {battle: (outcome, vote_id) for battle, outcome, vote_id in log}
        for battle, number in Counter(battle for battle, _, _ in log).items():
            if number > 1:
                self._found["votes_doubled"].setdefault(battle, f"{number} times in {where}")
            if battle not in votes:
                self._found["votes_wrong"].setdefault(battle, f"in {where}, no visitor sent it")
        for battle, vote in votes.items():
            if battle not in found:
                if vote.is_acknowledged:
                    self._found["votes_lost"].setdefault(battle, f"not in {where}")
            elif found[battle][0] != vote.outcome or vote.vote_id not in (None, found[battle][1]) or vote.refusal:
                self._found["votes_wrong"].setdefault(battle, f"{where} has {found[battle]}, the ledger {vote}")

    def report(self, tally: Tally) -> None:
        """Add what was found to the tally."""
        for promise, battles in self._found.items():
            if battles:
                first = next(iter(battles.items()))
                tally.break_promise(promise, f"{len(battles)} battles, first {first[0]}: {first[1]}", len(battles))


async def _compare_boards(arena: Arena, rated: list[int], tally: Tally) -> None:
    """Every controller's board counts what its log has; a board may be a second late."""
    deadline = time.monotonic() + 15
    shown: list[int] = []
    while time.monotonic() < deadline:
        shown = [await _num_votes(arena, url) for url in arena.controller_urls]
        if shown == rated and len(set(shown)) == 1:
            return
        await asyncio.sleep(0.5)
    tally.break_promise("boards_differ", f"boards count {shown}, their logs {rated} rated votes")


async def _num_votes(arena: Arena, url: str) -> int:
    try:
        async with arena.http.get(f"{url}/arena/leaderboard") as answer:
            return int((await answer.json())["num_votes"])
    except (aiohttp.ClientError, OSError, KeyError, ValueError):
        return -1
