"""Faults of connections between controllers and the store, and between controllers and workers, by the fault proxy."""

import asyncio
import random
import time
from dataclasses import replace

from tests.faults.kills import note
from tests.faults.proxy import CLEAR, FaultProxy, Link, slow
from tests.faults.run import Run


async def reset_connections(run: Run) -> None:
    """RST on one connection or on all of one link; every tenth round on all links at once."""
    async with run.load():
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.3))
            reset_at = time.monotonic()
            if rng.random() < 0.1:
                for proxy in _proxies(run):
                    run.tally.count("connections_reset", proxy.reset_all())
            else:
                proxy = rng.choice(_proxies(run))
                is_one = rng.random() < 0.5
                run.tally.count("connections_reset", int(proxy.reset_one(rng)) if is_one else proxy.reset_all())
            note(run.tally.recovery_s, await run.recovery(reset_at))
    await run.audit()


async def storm_of_resets(run: Run) -> None:
    """All connections of the store's links are reset about every two seconds, again and again; then the arena must
    take votes without help, and each controller must be ready."""
    async with run.load():
        for rng in run.each_round():
            for proxy in run.arena.proxies["store"]:
                run.tally.count("connections_reset", proxy.reset_all())
            await asyncio.sleep(rng.uniform(0.2, 2.0))
    await _must_recover(run)
    await run.audit()


async def break_links(run: Run) -> None:
    """A link loses everything, holds everything back in one direction, is slow or late, for a second or two."""
    async with run.load(6):
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.3))
            proxy = rng.choice(_proxies(run))
            kind = _break(proxy, rng)
            run.tally.count(f"links_{kind}")
            await asyncio.sleep(rng.uniform(0.3, 2.5))
            proxy.clear()
            note(run.tally.recovery_s, await run.recovery(time.monotonic()))
    await _must_recover(run)
    await run.audit()


async def corrupt_links(run: Run) -> None:
    """Bytes are changed on the way. Texts and votes may be wrong then, as TCP has no defence against it above its own
    checksum; but nothing may die, hang, or answer an untyped error, and afterwards all is well."""
    async with run.load(6):
        for rng in run.each_round():
            await asyncio.sleep(rng.uniform(0, 0.2))
            proxy = rng.choice(_proxies(run))
            bad = replace(CLEAR, corrupted_share=rng.uniform(0.02, 0.3))
            proxy.set(forward=bad if rng.random() < 0.5 else None, backward=bad)
            await asyncio.sleep(rng.uniform(0.2, 1.5))
            proxy.clear()
            proxy.reset_all()
            note(run.tally.recovery_s, await run.recovery(time.monotonic()))
    await _must_recover(run)


def _proxies(run: Run) -> list[FaultProxy]:
    return [proxy for name in sorted(run.arena.proxies) for proxy in run.arena.proxies[name]]


def _break(proxy: FaultProxy, rng: random.Random) -> str:
    kind = rng.choice(("drop", "half_open_forward", "half_open_backward", "delay", "slow"))
    match kind:
        case "drop":
            lost = Link(is_dropping=True)
            proxy.set(forward=lost, backward=lost)
        case "half_open_forward":
            proxy.set(forward=Link(is_half_open=True))
        case "half_open_backward":
            proxy.set(backward=Link(is_half_open=True))
        case "delay":
            late = Link(delay_s=rng.uniform(0.05, 0.4))
            proxy.set(forward=late, backward=late)
        case "slow":
            proxy.set(backward=slow(rng.choice((2_000, 20_000))))
    return kind


async def _must_recover(run: Run) -> None:
    """Each controller takes votes and says that it is ready."""
    for index, controller in enumerate(run.arena.controllers):
        await run.recovery(time.monotonic(), at=index)
        try:
            await controller.wait_ready(15)
        except AssertionError:
            run.tally.break_promise("never_recovered", f"{controller.name} is not ready: {controller.tail(600)}")
