"""`python -m tests.failovers`: many fail-overs of a store under votes; prints one JSON object.

A primary, its replicas and three sentinels. In turns the primary is killed, hangs, or is cut off from its replicas and
killed. Without --journal only the store's own promise is tested.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from cli.bench import record
from tests.controller.support.arena import Arena, make_settings, running_arena
from tests.failovers.replicas import DOWN_AFTER_MS, PASSWORD, SENTINEL_PASSWORD, Replicas, running_replicas
from tests.failovers.voting import KINDS, Tally, fail_over, lost_and_doubled, vote_until

VISITORS = 8
_RESTORE_S = 15.0  #: the follower looks every second


async def run(replicas: Replicas, rounds: int, vote_replicas: int, journal: Path | None) -> dict[str, object]:
    """The figures of so many fail-overs. journal: a folder for one, from which lost votes are restored."""
    settings = make_settings(
        replicas.url,
        "failovers",
        redis_password=PASSWORD,
        sentinel_password=SENTINEL_PASSWORD,
        vote_replicas=vote_replicas,
        store_timeout_s=1.0,
        owner_lease_s=3.0,
        journal_dir=journal,
    )
    async with running_arena(settings) as arena:
        await arena.add_two()
        tally, is_over = Tally(), asyncio.Event()
        visitors = [asyncio.create_task(vote_until(arena, is_over, tally)) for _ in range(VISITORS)]
        gaps = []
        for number in range(rounds):
            kind = KINDS[number % len(KINDS)]
            gaps.append(await fail_over(replicas, kind, tally))
            print(
                f"{number + 1:3} {kind:4} {gaps[-1]:.2f} s without votes, {len(tally.acknowledged)} votes", flush=True
            )
        is_over.set()
        await asyncio.gather(*visitors)
        lost, doubled = await lost_and_doubled(arena, tally)
        if journal is not None and lost:
            lost, doubled = await _restored(arena, tally)
    return {
        "failovers": rounds,
        "servers": len(replicas.servers),
        "vote_replicas": vote_replicas,
        "journal": journal is not None,
        "down_after_ms": DOWN_AFTER_MS,
        "acknowledged": len(tally.acknowledged),
        "lost": lost,
        "doubled": doubled,
        "refused": dict(tally.refused),
        "gap_p50_s": round(statistics.median(gaps), 2),
        "gap_max_s": round(max(gaps), 2),
    }


async def _restored(arena: Arena, tally: Tally) -> tuple[int, int]:
    """As lost_and_doubled, when the journal's follower has had the time to bring back what is missing."""
    give_up_at = time.monotonic() + _RESTORE_S
    while True:
        lost, doubled = await lost_and_doubled(arena, tally)
        if not lost or time.monotonic() > give_up_at:
            return lost, doubled
        await asyncio.sleep(0.5)


def main() -> None:
    """Exit code 1 if a vote was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--vote-replicas", type=int, default=1, help="0: what is lost without WAITAOF")
    parser.add_argument("--servers", type=int, default=3, help="the primary and its replicas")
    parser.add_argument("--journal", action="store_true", help="the controller keeps one, as agon up and Docker set it")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_replicas(Path(folder), asked.servers) as replicas:
        journal = Path(folder) / "journal" if asked.journal else None
        figures = asyncio.run(run(replicas, asked.rounds, asked.vote_replicas, journal))
    print(json.dumps(record.document("failovers", {"rounds": asked.rounds}, [figures])))
    raise SystemExit(1 if figures["lost"] or figures["doubled"] else 0)


if __name__ == "__main__":
    main()
