"""All scenarios: what breaks, how often in each tier, and the arena that it needs."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults import cold, crowd, disk, kills, leaks, network, pauses
from tests.faults.arena import Plan
from tests.faults.run import Run
from tests.faults.tally import Tally

_PLAN = Plan()
_WITH_PAGES = Plan(webuis=1)
_PROXIED = Plan(proxied=frozenset({"store", "worker"}))
#: TCP's checksum is the defence against changed bytes; what gets through it may change any text or number.
_NOT_OF_BYTES = frozenset(
    {"wrong_tokens", "votes_wrong", "votes_lost", "unexpected_refusals", "silent_cuts", "server_errors"}
)


@dataclass(frozen=True)
class Scenario:
    """A scenario and its size: `rounds` in the full tier, `quick_rounds` in that of `make test` (0: not in it)."""

    name: str
    what: str  #: for the table
    unit: str  #: what one round is
    play: Callable[[Run], Awaitable[None]] | None
    rounds: int
    quick_rounds: int = 0
    plan: Plan = _PLAN
    forgets_battles: bool = False  #: the store loses battles, so a battle that is not found is no failure
    not_promised: frozenset[str] = frozenset()
    under_supervisor: Callable[[Path, int, Tally], None] | None = None  #: instead of `play`: cold starts
    needs: str = ""  #: a `compiler`, or `root` for a file system of its own


SCENARIOS: Sequence[Scenario] = (
    Scenario("worker-kill", "worker killed, a replica lives", "kill -9", kills.kill_workers, 1000, 8),
    Scenario("controller-kill", "controller killed", "kill -9", kills.kill_controllers, 1000, 6),
    Scenario("store-kill", "store killed", "kill -9", kills.kill_store, 1000, 8),
    Scenario("webui-kill", "web UI killed", "kill -9", kills.kill_web_ui, 1000, 3, _WITH_PAGES),
    Scenario("replicas-kill", "all workers of a model killed", "kill -9", kills.kill_all_replicas, 100),
    Scenario("resets", "connections reset", "TCP reset", network.reset_connections, 500, 10, _PROXIED),
    Scenario("reset-storm", "store connections reset every 2 s", "storm", network.storm_of_resets, 60, 0, _PROXIED),
    Scenario("links", "links lossy, half open, slow, late", "fault", network.break_links, 60, 0, _PROXIED),
    Scenario(
        "corruption",
        "bytes changed on a link",
        "fault",
        network.corrupt_links,
        30,
        0,
        _PROXIED,
        forgets_battles=True,
        not_promised=_NOT_OF_BYTES,
    ),
    Scenario("stops", "worker, controller or store stopped", "SIGSTOP", pauses.stop_processes, 200, 3),
    Scenario("wipes", "store wiped", "wipe", disk.wipe_store, 50, 2, forgets_battles=True),
    Scenario("log-damage", "log of the store damaged", "damage", disk.damage_log, 200, 4, forgets_battles=True),
    Scenario("disconnects", "visitors who leave at random", "disconnect", leaks.disconnect_at_random, 10_000, 200),
    Scenario("day", "the battles of a day", "battle", leaks.live_a_day, leaks.BATTLES_A_DAY, plan=_WITH_PAGES),
    Scenario("crowd", "thirty visitors of the page at once", "battle", crowd.thirty_visitors, 3000, plan=_WITH_PAGES),
    Scenario("disk-full", "disk full", "time", disk.fill_disk, 10, 0, needs="root"),
    Scenario("clock-jumps", "clock of store or controller jumps", "jump", pauses.jump_clocks, 60, needs="compiler"),
    Scenario(
        "cold-kill",
        "each process of `agon up` killed in turn",
        "4 kill -9",
        None,
        20,
        under_supervisor=cold.kill_under_supervisor,
    ),
)


def by_name(name: str) -> Scenario:
    """The scenario of this name; raises KeyError."""
    return {scenario.name: scenario for scenario in SCENARIOS}[name]


def new_seed() -> int:
    """A seed where none is given; printed, so that the run can be repeated."""
    return random.SystemRandom().randrange(1_000_000)
