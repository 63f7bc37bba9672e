"""Thirty visitors of the page at once, without a fault: no error, and no question, vote or reveal lost."""

import asyncio
import statistics
import time

from tests.faults.pages import read_layout
from tests.faults.run import Run

NUM_VISITORS = 30


async def thirty_visitors(run: Run) -> None:
    """Each round is one battle of one of them, from the load of the page to the names."""
    layout = await read_layout(run.arena.webui_urls[0], run.arena.http)
    rounds = iter(run.each_round())
    seconds: list[float] = []

    async def visitor(number: int) -> None:
        browser = run.browser(f"visitor {number}", layout)
        for _ in rounds:
            started = time.monotonic()
            if await browser.battle():
                seconds.append(time.monotonic() - started)

    await asyncio.gather(*(visitor(number) for number in range(NUM_VISITORS)))
    tally = run.tally
    for what in ("pages_lost", "pages_restored", "battles_aborted"):  # without a fault there is no reason for any
        if tally.counts[what]:
            tally.break_promise("unexpected_refusals", f"{tally.counts[what]} {what}", tally.counts[what])
    tally.figures |= {
        "battle_s_p50": round(statistics.median(seconds), 2),
        "battle_s_p99": round(sorted(seconds)[int(0.99 * len(seconds))], 2),
        "battle_s_max": round(max(seconds), 2),
    }
    await run.audit()
