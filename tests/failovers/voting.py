"""Visitors who vote without pause while the store fails over, and what became of their votes."""

import asyncio
import contextlib
import itertools
import secrets
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.controller.support.arena import Arena
from tests.failovers.replicas import Replicas

#: How the primary goes: killed; hanging; or killed after no replica could hear it for a while, so that what it
#: wrote meanwhile is lost with it.
KINDS = ("kill", "hang", "cut")
_CUT_S = 1.0


@dataclass
class Tally:
    """What visitors were told. `acknowledged`: battle -> vote id; times are of the event loop, in seconds."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


async def vote_until(arena: Arena, is_over: asyncio.Event, tally: Tally) -> None:
    """One visitor: a battle, its answers, a vote that is sent until it is acknowledged, again and again."""
    while not is_over.is_set():
        with contextlib.suppress(httpx.HTTPError, AssertionError, KeyError):
            battle = str((await arena.create())["id"])
            await arena.turn(battle, f"hello {secrets.token_hex(4)}")
            await _vote(arena, battle, tally)


async def _vote(arena: Arena, battle: str, tally: Tally) -> None:
    """As the page does: without an answer the vote's state is unknown, so the same vote is sent again."""
    give_up_at = time.monotonic() + 30
    while time.monotonic() < give_up_at:
        try:
            response = await arena.vote(battle, "a")
        except httpx.HTTPError:
            continue
        if response.status_code == 200:
            tally.acknowledged[battle] = str(response.json()["vote_id"])
            tally.times.append(time.monotonic())
            return
        tally.refused[str(response.json()["error"]["code"])] += 1
        if response.status_code != 503:  # the battle itself is lost with the former primary
            return
        await asyncio.sleep(0.05)


async def fail_over(replicas: Replicas, kind: str, tally: Tally) -> float:
    """One fail-over under votes. Returns the longest time without an acknowledged vote, in seconds."""
    primary, others = replicas.primary(), replicas.others()
    await _another_vote(tally)
    started = time.monotonic()
    if kind == "cut":
        for replica in others:
            replica.signal(signal.SIGSTOP)
        await asyncio.sleep(_CUT_S)
        primary.kill()
        for replica in others:
            replica.signal(signal.SIGCONT)
    elif kind == "hang":
        primary.signal(signal.SIGSTOP)
    else:
        primary.kill()
    await asyncio.to_thread(replicas.wait_for_another, primary)
    if kind == "hang":
        primary.signal(signal.SIGCONT)  # it comes back as a primary and is told at once that it is none
        await asyncio.to_thread(replicas.wait_in_step)
    else:
        await asyncio.to_thread(replicas.rejoin, primary)
    await _another_vote(tally)
    times = [started, *(at for at in tally.times if at > started)]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


async def _another_vote(tally: Tally) -> None:
    number = len(tally.times)
    give_up_at = time.monotonic() + 30
    while len(tally.times) == number:
        assert time.monotonic() < give_up_at, "no vote is acknowledged any more"
        await asyncio.sleep(0.01)


async def lost_and_doubled(arena: Arena, tally: Tally) -> tuple[int, int]:
    """Acknowledged votes that the log lacks or has with another id, and battles with several votes in the log."""
    log = [record for record in await arena.vote_log() if "battle_id" in record]
    found = {record["battle_id"]: record["vote_id"] for record in log}
    counts = Counter(record["battle_id"] for record in log)
    lost = sum(found.get(battle) != vote_id for battle, vote_id in tally.acknowledged.items())
    return lost, sum(number > 1 for number in counts.values())
