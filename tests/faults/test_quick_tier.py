"""The quick tier: every scenario that has one, with few rounds, against real processes. `make faults` runs all in full.

The seed is fixed, so the schedules are the same in every run.
"""

import sys
from collections.abc import Iterator

import pytest

from tests.faults.__main__ import run_scenario
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.services import ForkServers

_SEED = 20_261_122

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc"),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[ForkServers]:
    servers = ForkServers()
    yield servers
    servers.close()


@pytest.mark.parametrize(
    "scenario", [scenario for scenario in SCENARIOS if scenario.quick_rounds], ids=lambda scenario: scenario.name
)
def test_promises_hold_while_things_break(scenario: Scenario, servers: ForkServers) -> None:
    result = run_scenario(scenario, rounds=scenario.quick_rounds, seed=_SEED, is_quick=True, servers=servers)
    assert result["clean"], "\n".join(result["lines"])
    assert result["counts"].get("votes", 0) > 0
