"""Processes that hang (SIGSTOP) and clocks that jump."""

import asyncio
import random
import time

from tests.faults.clocks import clock_file, set_clock
from tests.faults.kills import note
from tests.faults.run import Run


async def stop_processes(run: Run) -> None:
    """SIGSTOP of a worker, a controller or the store for 0.3 to 20 s. Recovery counts from the stop where another
    process can take over, from SIGCONT for the store."""
    async with run.load():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.3))
            kind = rng.choices(("worker", "controller", "store"), (5, 3, 2))[0]
            duration_s = _duration(rng, run.is_quick)
            run.tally.count(f"stopped_{kind}")
            if kind == "store":
                await run.arena.store.pause(duration_s)
                note(run.tally.recovery_s, await run.recovery(time.monotonic()))
            else:
                index = rng.randrange(len(run.arena.controllers if kind == "controller" else run.arena.workers))
                victim = (run.arena.controllers if kind == "controller" else run.arena.workers)[index]
                other = 1 - index if kind == "controller" else None
                stopped_at = time.monotonic()
                async with asyncio.TaskGroup() as group:
                    group.create_task(victim.pause(duration_s))
                    note(run.tally.recovery_s, await run.recovery(stopped_at, at=other))
            await run.arena.wait_workers_again()
    await run.audit()


async def jump_clocks(run: Run) -> None:
    """The wall clock of the store or of one controller jumps by up to an hour, forwards or back, and stays there; the
    monotonic clock goes on. Battles go on across the jump."""
    clocks = {service.name: clock_file(run.arena.folder, service.name) for service in run.arena.services}
    async with run.load(6):
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0.1, 0.5))
            name = rng.choice(("store", *(controller.name for controller in run.arena.controllers)))
            seconds = rng.choice((-3600, -600, -30, 0, 30, 600, 3600))
            run.tally.count(f"jumps_{'store' if name == 'store' else 'controller'}")
            set_clock(clocks[name], seconds)
            note(run.tally.recovery_s, await run.recovery(time.monotonic()))
            await asyncio.sleep(rng.uniform(0, 1.5))
    await run.audit()


def _duration(rng: random.Random, is_quick: bool) -> float:
    """Mostly short: a process that swaps; sometimes longer than every time limit of a registration or a lease."""
    share = rng.random()
    if is_quick or share < 0.65:
        return rng.uniform(0.3, 1.5)
    return rng.uniform(1.5, 6.0) if share < 0.9 else rng.uniform(6.0, 20.0)
