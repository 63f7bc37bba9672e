"""`python -m tests.failovers`: many fail-overs of a store under votes; prints one JSON object.

A primary, its replicas and three sentinels. In turns the primary is killed, hangs, or is cut off from its replicas and
killed. No journal is kept, so that only the store's own promise is tested.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from pathlib import Path

from cli.bench import record
from tests.controller.support.arena import make_settings, running_arena
from tests.failovers.replicas import DOWN_AFTER_MS, PASSWORD, SENTINEL_PASSWORD, Replicas, running_replicas
from tests.failovers.voting import KINDS, Tally, fail_over, lost_and_doubled, vote_until

VISITORS = 8


async def run(replicas: Replicas, rounds: int, vote_replicas: int) -> dict[str, object]:
    """The figures of so many fail-overs."""
    settings = make_settings(
        replicas.url,
        "failovers",
        redis_password=PASSWORD,
        sentinel_password=SENTINEL_PASSWORD,
        vote_replicas=vote_replicas,
        store_timeout_s=1.0,
        owner_lease_s=3.0,
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
    return {
        "failovers": rounds,
        "servers": len(replicas.servers),
        "vote_replicas": vote_replicas,
        "down_after_ms": DOWN_AFTER_MS,
        "acknowledged": len(tally.acknowledged),
        "lost": lost,
        "doubled": doubled,
        "refused": dict(tally.refused),
        "gap_p50_s": round(statistics.median(gaps), 2),
        "gap_max_s": round(max(gaps), 2),
    }


def main() -> None:
    """Exit code 1 if a vote was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--vote-replicas", type=int, default=1, help="0: what is lost without WAITAOF")
    parser.add_argument("--servers", type=int, default=3, help="the primary and its replicas")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_replicas(Path(folder), asked.servers) as replicas:
        figures = asyncio.run(run(replicas, asked.rounds, asked.vote_replicas))
    print(json.dumps(record.document("failovers", {"rounds": asked.rounds}, [figures])))
    raise SystemExit(1 if figures["lost"] or figures["doubled"] else 0)


if __name__ == "__main__":
    main()
