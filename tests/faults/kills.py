"""kill -9 of workers, controllers and store under load."""

import asyncio
import time
from collections.abc import Awaitable

from tests.faults.pages import read_layout
from tests.faults.run import Run
from tests.faults.services import Service


async def kill_workers(run: Run) -> None:
    """One worker a round, at a random moment; a replica of its model is alive."""
    async with run.load():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.25))
            victim = rng.choice(run.arena.workers)
            killed_at = await victim.kill()
            async with asyncio.TaskGroup() as group:
                group.create_task(start_again(victim, rng.uniform(0, 0.1)))
                recovery_s = await run.recovery(killed_at)
            note(run.tally.recovery_s, recovery_s)
            await run.arena.wait_workers()
            note(run.tally.own_recovery_s, _since(killed_at))
    run.judge_aborted()
    await run.audit()


async def kill_all_replicas(run: Run) -> None:
    """All replicas of one model at once: its answers fail by name, the arena recovers when they are back."""
    async with run.load():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0.1, 0.4))
            victims = run.arena.replicas(rng.choice(run.arena.plan.models))
            killed_at = min(await asyncio.gather(*(victim.kill() for victim in victims)))
            for victim in victims:
                await start_again(victim, rng.uniform(0, 0.1))
            note(run.tally.recovery_s, await run.recovery(killed_at))
            await run.arena.wait_workers()
    await run.audit()


async def kill_controllers(run: Run) -> None:
    """One controller a round; its turns go on at the other one, and every fourth time that one is killed, too."""
    async with run.load():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.25))
            index = rng.randrange(len(run.arena.controllers))
            victims = [run.arena.controllers[index]]
            if rng.random() < 0.25:
                victims.append(run.arena.controllers[1 - index])
            killed_at = await victims[0].kill()
            for victim in victims[1:]:
                await asyncio.sleep(rng.uniform(0, 0.05))
                killed_at = await victim.kill()
            async with asyncio.TaskGroup() as group:
                for victim in victims:
                    group.create_task(start_again(victim, rng.uniform(0, 0.1)))
                group.create_task(note_later(run.tally.own_recovery_s, run.recovery(killed_at, at=index)))
                group.create_task(note_later(run.tally.recovery_s, run.recovery(killed_at)))
            await asyncio.gather(*(controller.wait_ready() for controller in run.arena.controllers))
    run.judge_aborted()
    await run.audit()


async def kill_store(run: Run) -> None:
    """The store, at a random moment; started again at once, and asked until it answers, as its supervisor does: the
    files of a store that has never answered are mended before the next start, which takes longer than a start."""
    async with run.load():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.25))
            killed_at = await run.arena.store.kill()
            await start_again(run.arena.store, rng.uniform(0, 0.05))
            async with asyncio.TaskGroup() as group:
                group.create_task(run.arena.store.wait_ready())
                group.create_task(note_later(run.tally.recovery_s, run.recovery(killed_at)))
    await run.audit()


async def kill_web_ui(run: Run) -> None:
    """The web UI, while visitors read answers and vote on its page. The page is loaded again and finds its battle.
    Recovery is the time to the first battle that is voted on through the new process."""
    layout = await read_layout(run.arena.webui_urls[0], run.arena.http)
    webui = run.arena.webuis[0]
    async with run.browsers():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.4))
            killed_at = await webui.kill()
            await start_again(webui, rng.uniform(0, 0.05))
            prober = run.browser(f"prober {run.tally.round}", layout)
            if await prober.battle(num_words=2):
                note(run.tally.recovery_s, _since(killed_at))
    await run.audit()


async def start_again(service: Service, delay_s: float) -> None:
    """Start a killed service after a delay."""
    await asyncio.sleep(delay_s)
    service.start()


def note(times: list[float], value: float | None) -> None:
    """Add a time that could be measured."""
    if value is not None:
        times.append(value)


async def note_later(times: list[float], value: Awaitable[float | None]) -> None:
    """Wait for a time and add it."""
    note(times, await value)


def _since(moment: float) -> float:
    return time.monotonic() - moment
