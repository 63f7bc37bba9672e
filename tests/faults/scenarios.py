"""The scenarios: what breaks in each round, and under which load. Each is one function of a Run."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tests.faults.arena import Plan
from tests.faults.run import Run
from tests.faults.services import Service

DEFAULT_PLAN = Plan()


@dataclass(frozen=True)
class Scenario:
    """A scenario and its size: `rounds` in the full tier, `quick_rounds` in that of `make test`."""

    name: str
    what: str  #: for the table
    play: Callable[[Run], Awaitable[None]]
    rounds: int
    quick_rounds: int
    plan: Plan = DEFAULT_PLAN
    forgets_battles: bool = False
    unit: str = "kill -9"


async def kill_workers(run: Run) -> None:
    """One worker a round, at a random moment; a replica of its model is alive."""
    async with run.load():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.25))
            victim = rng.choice(run.arena.workers)
            killed_at = await victim.kill()
            async with asyncio.TaskGroup() as group:
                group.create_task(_start_again(victim, rng.uniform(0, 0.1)))
                recovery_s = await run.recovery(killed_at)
            _note(run.tally.recovery_s, recovery_s)
            await run.arena.wait_workers()
            _note(run.tally.own_recovery_s, _since(killed_at))
    await run.audit()


async def kill_all_replicas(run: Run) -> None:
    """All replicas of one model at once: its answers fail by name, the arena recovers when they are back."""
    async with run.load():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0.1, 0.4))
            victims = run.arena.replicas(rng.choice(run.arena.plan.models))
            killed_at = min(await asyncio.gather(*(victim.kill() for victim in victims)))
            for victim in victims:
                await _start_again(victim, rng.uniform(0, 0.1))
            _note(run.tally.recovery_s, await run.recovery(killed_at))
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
                    group.create_task(_start_again(victim, rng.uniform(0, 0.1)))
                group.create_task(_note_later(run.tally.own_recovery_s, run.recovery(killed_at, at=index)))
                group.create_task(_note_later(run.tally.recovery_s, run.recovery(killed_at)))
            await asyncio.gather(*(controller.wait_ready() for controller in run.arena.controllers))
    await run.audit()


async def kill_store(run: Run) -> None:
    """The store, at a random moment; started again at once."""
    async with run.load():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.25))
            killed_at = await run.arena.store.kill()
            await _start_again(run.arena.store, rng.uniform(0, 0.05))
            _note(run.tally.recovery_s, await run.recovery(killed_at))
    await run.audit()


async def _start_again(service: Service, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    service.start()


def _note(times: list[float], value: float | None) -> None:
    if value is not None:
        times.append(value)


async def _note_later(times: list[float], value: Awaitable[float | None]) -> None:
    _note(times, await value)


def _since(moment: float) -> float:
    return asyncio.get_running_loop().time() - moment


SCENARIOS: Sequence[Scenario] = (
    Scenario("worker-kill", "worker killed, a replica lives", kill_workers, 1000, 15),
    Scenario("controller-kill", "controller killed", kill_controllers, 1000, 10),
    Scenario("store-kill", "store killed", kill_store, 1000, 12),
    Scenario("replicas-kill", "all workers of a model killed", kill_all_replicas, 100, 2),
)


def by_name(name: str) -> Scenario:
    """The scenario of this name; raises KeyError."""
    return {scenario.name: scenario for scenario in SCENARIOS}[name]


def schedule_seed() -> int:
    """A seed where none is given; printed, so that the run can be repeated."""
    return random.SystemRandom().randrange(1_000_000)
