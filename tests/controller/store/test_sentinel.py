"""The store fails over to a replica while visitors vote: nothing that was acknowledged is lost (tests/failovers)."""

import asyncio
import signal
from pathlib import Path

from tests.controller.support.arena import make_settings, running_arena
from tests.failovers.replicas import PASSWORD, SENTINEL_PASSWORD, running_replicas
from tests.failovers.voting import Tally, fail_over, lost_and_doubled, vote_until


async def test_no_acknowledged_vote_is_lost_when_a_replica_becomes_the_primary(tmp_path: Path) -> None:
    with running_replicas(tmp_path / "replicas") as replicas:
        settings = make_settings(
            replicas.url, "test", redis_password=PASSWORD, sentinel_password=SENTINEL_PASSWORD, store_timeout_s=1.0
        )
        assert settings.needed_replicas == 1
        async with running_arena(settings) as arena:
            await arena.add_two()
            tally, is_over = Tally(), asyncio.Event()
            visitors = [asyncio.create_task(vote_until(arena, is_over, tally)) for _ in range(3)]

            await fail_over(replicas, "cut", tally)

            is_over.set()
            await asyncio.gather(*visitors)
            assert await lost_and_doubled(arena, tally) == (0, 0)

            [replica] = replicas.others()
            replica.signal(signal.SIGSTOP)
            battle = await arena.create()
            await arena.turn(battle["id"])
            refused = await arena.vote(battle["id"])
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
            replica.signal(signal.SIGCONT)
            await asyncio.to_thread(replicas.wait_in_step)
            assert (await arena.vote(battle["id"])).status_code == 200
