"""One run of a scenario: its arena, ledger, tally and load, and the random schedule of its rounds.

A round's schedule depends on seed, scenario and number of the round alone, so one round can be replayed without those
before it.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from tests.faults.arena import Arena
from tests.faults.audit import audit
from tests.faults.ledger import Ledger
from tests.faults.pages import Browser, Layout, read_layout
from tests.faults.services import Service
from tests.faults.tally import Tally
from tests.faults.visitors import Site, Visitor

MOST_ABORTED = 5
RECOVERY_S = 60.0  #: an arena that takes no vote for this long after a fault has not recovered


@dataclass
class Run:
    """What a scenario works with. `rounds` counts from `first_round` on."""

    scenario: str
    arena: Arena
    ledger: Ledger
    tally: Tally
    seed: int
    rounds: int
    first_round: int = 1
    is_quick: bool = False
    forgets_battles: bool = False

    @staticmethod
    def make_rng(seed: int, scenario: str) -> random.Random:
        """Random numbers for what belongs to no round."""
        return random.Random(f"{seed}/{scenario}")

    def schedule(self, number: int) -> random.Random:
        """The random numbers of one round."""
        return random.Random(f"{self.seed}/{self.scenario}/{number}")

    def each_round(self) -> Iterator[random.Random]:
        """The schedules of all rounds; the tally knows which one runs."""
        started = time.monotonic()
        for number in range(self.first_round, self.first_round + self.rounds):
            self.tally.round = number
            yield self.schedule(number)
            self._note_deaths()
            done = number - self.first_round + 1
            if done % max(1, self.rounds // 20) == 0 and not self.is_quick:
                broken = {name: value for name, value in self.tally.broken.items() if value}
                print(f"{self.scenario}: round {done} of {self.rounds}, {time.monotonic() - started:.0f} s, "
                      f"{self.tally.counts['votes']} votes, broken: {broken or 'nothing'}", flush=True)  # fmt: skip

    @property
    def site(self) -> Site:
        """What visitors know of the arena."""
        controllers = self.arena.controllers
        return Site(
            urls=self.arena.controller_urls,
            num_faults=lambda index: controllers[index].num_faults,
            http=self.arena.http,
            forgets_battles=self.forgets_battles,
        )

    def visitor(self, name: str, *, pace_s: float = 0.0) -> Visitor:
        """A new visitor with random numbers of its own."""
        rng = random.Random(f"{self.seed}/{self.scenario}/{name}")
        return Visitor(self.site, self.ledger, self.tally, rng, pace_s=pace_s)

    @contextlib.asynccontextmanager
    async def load(self, num_visitors: int = 8, *, pace_s: float = 0.4) -> AsyncIterator[None]:
        """Visitors who battle all the time while the block runs; left when their last battles are over."""
        stop = asyncio.Event()
        visitors = [self.visitor(f"visitor {number}", pace_s=pace_s) for number in range(num_visitors)]
        async with asyncio.TaskGroup() as group:
            for visitor in visitors:
                group.create_task(visitor.run(stop))
            try:
                await asyncio.sleep(0.5)
                yield
            finally:
                stop.set()

    @contextlib.asynccontextmanager
    async def browsers(self, num_visitors: int = 4) -> AsyncIterator[None]:
        """Visitors of the first web UI while the block runs."""
        stop = asyncio.Event()
        layout = await read_layout(self.arena.webui_urls[0], self.arena.http)
        async with asyncio.TaskGroup() as group:
            for number in range(num_visitors):
                group.create_task(self.browser(f"browser {number}", layout).run(stop))
            try:
                await asyncio.sleep(0.5)
                yield
            finally:
                stop.set()

    def browser(self, name: str, layout: Layout) -> Browser:
        """A new visitor of the first web UI."""
        rng = random.Random(f"{self.seed}/{self.scenario}/{name}")
        url = self.arena.webui_urls[0]
        cookies: dict[str, str] | None = {} if rng.random() < 0.5 else None
        visitor = self.visitor(name)
        return Browser(url, layout, self.arena.http, visitor.state_of, self.ledger, self.tally, rng, cookies=cookies)

    async def recovery(self, fault_at: float, *, at: int | None = None) -> float | None:
        """Seconds from the fault to the first battle that began after it and whose vote was acknowledged. `at`: only
        through this controller. None, and a broken promise, if there is none within RECOVERY_S."""
        prober = self.visitor(f"prober {self.tally.round} {at}")
        try:
            async with asyncio.timeout(RECOVERY_S):
                while not await prober.battle(num_words=2, at=at):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self.tally.break_promise("never_recovered", f"no vote within {RECOVERY_S:.0f} s of the fault")
            return None
        return time.monotonic() - fault_at

    def judge_aborted(self) -> None:
        """Another process can go on with every answer: at most MOST_ABORTED battles abort in a thousand rounds."""
        aborted = self.tally.counts["battles_aborted"]
        if aborted > max(1.0, MOST_ABORTED * self.rounds / 1000):
            self.tally.break_promise("battles_aborted", f"{aborted} in {self.rounds} rounds", aborted)

    async def audit(self) -> None:
        """The audit of ledger and leaks."""
        self._note_deaths()
        await audit(self.arena, self.ledger, self.tally)

    def _note_deaths(self) -> None:
        for service in self.arena.dead():
            self.tally.break_promise("unexpected_deaths", f"{service.name}: {service.tail(400)}")
            restart(service)


def restart(service: Service) -> None:
    """Start a dead service again, as its supervisor would."""
    service.start()
