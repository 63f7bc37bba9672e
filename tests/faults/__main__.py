"""`python -m tests.faults`: runs fault scenarios against real processes; one JSON line a scenario, then a table.

`make faults` runs all of them in full; FAULTS="--only store-kill --rounds 50 --seed 7" chooses.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from tests.faults.arena import free_port_range, running_arena
from tests.faults.clocks import build_shim, find_compiler
from tests.faults.disk import small_file_system
from tests.faults.ledger import Ledger
from tests.faults.run import Run
from tests.faults.scenarios import SCENARIOS, Scenario, by_name, new_seed
from tests.faults.services import ForkServers
from tests.faults.table import table
from tests.faults.tally import Tally, as_json


def main() -> int:
    """Returns 1 if a promise was broken."""
    options = _parse()
    seed = options.seed if options.seed is not None else new_seed()
    chosen = [by_name(name) for name in options.only] if options.only else list(SCENARIOS)
    if options.quick and not options.only:
        chosen = [scenario for scenario in chosen if scenario.quick_rounds]
    results = []
    with contextlib.closing(ForkServers()) as servers:
        for scenario in chosen:
            if (missing := _missing(scenario)) is not None:
                print(f"{scenario.name} is not run: {missing}", flush=True)
                continue
            results.append(_run_and_print(scenario, options, seed, servers))
    if results:
        print(f"\n{table(results)}", flush=True)
    return 0 if all(result["clean"] for result in results) else 1


def _run_and_print(scenario: Scenario, options: argparse.Namespace, seed: int, servers: ForkServers) -> dict[str, Any]:
    result = run_scenario(
        scenario,
        rounds=options.rounds or (scenario.quick_rounds if options.quick else scenario.rounds),
        seed=seed,
        first_round=options.first_round,
        is_quick=options.quick,
        folder=options.folder,
        first_port=options.port,
        servers=servers,
    )
    print(json.dumps(result), flush=True)
    if options.json is not None:
        with options.json.open("a") as file:
            file.write(json.dumps(result) + "\n")
    for line in result["lines"]:
        print(f"  {line}", flush=True)
    return result


def _missing(scenario: Scenario) -> str | None:
    """What this machine lacks for a scenario; None if nothing."""
    if scenario.needs == "root" and os.geteuid() != 0:
        return "it makes a file system of its own, which needs root"
    if scenario.needs == "compiler" and find_compiler() is None:
        return "it builds a library, which needs a C compiler"
    return None


def run_scenario(
    scenario: Scenario,
    *,
    rounds: int,
    seed: int,
    first_round: int = 1,
    is_quick: bool = False,
    folder: Path | None = None,
    first_port: int | None = None,
    servers: ForkServers,
) -> dict[str, Any]:
    """Play one scenario in a fresh arena; returns its JSON line."""
    with tempfile.TemporaryDirectory(prefix="agon-faults-", ignore_cleanup_errors=True) as temporary:
        base = Path(folder or temporary) / scenario.name
        base.mkdir(parents=True, exist_ok=True)
        tally = Tally(not_promised=scenario.not_promised)
        started, load_before = time.monotonic(), os.getloadavg()[0]
        try:
            if scenario.under_supervisor is not None:
                scenario.under_supervisor(base, rounds, tally)
            else:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(_play(scenario, rounds, seed, first_round, is_quick, base, first_port, tally, servers))
        except Exception as error:  # the other scenarios are still worth running
            traceback.print_exc()
            tally.break_promise("never_recovered", f"the scenario ended with {error!r}")
        return {
            "scenario": scenario.name,
            "what": scenario.what,
            "unit": scenario.unit,
            "rounds": rounds,
            "first_round": first_round,
            "seed": seed,
            "tier": "quick" if is_quick else "full",
            "starts": "warm" if scenario.under_supervisor is None else "cold",
            "commit": _commit(),
            "seconds": round(time.monotonic() - started, 1),
            "cores": os.cpu_count(),
            "load_before": round(load_before, 2),
            **as_json(tally),
        }


async def _play(
    scenario: Scenario,
    rounds: int,
    seed: int,
    first_round: int,
    is_quick: bool,
    base: Path,
    first_port: int | None,
    tally: Tally,
    servers: ForkServers,
) -> None:
    assert scenario.play is not None
    (base / "ledger.jsonl").unlink(missing_ok=True)
    ledger = Ledger(base / "ledger.jsonl")
    run_rng = Run.make_rng(seed, scenario.name)
    async with contextlib.AsyncExitStack() as stack:
        plan = scenario.plan
        if is_quick:  # the audit waits until the leases of killed controllers have expired
            plan = replace(plan, environment=(("AGON_SLOT_LEASE_S", "3"),))
        if scenario.needs == "root":
            stack.enter_context(small_file_system(base / "data"))
        if scenario.needs == "compiler":
            plan = replace(plan, preload=str(build_shim(base)), clocks=base)
        arena = await stack.enter_async_context(
            running_arena(base, plan, first_port or free_port_range(), run_rng, servers)
        )
        run = Run(
            scenario=scenario.name,
            arena=arena,
            ledger=ledger,
            tally=tally,
            seed=seed,
            rounds=rounds,
            first_round=first_round,
            is_quick=is_quick,
            forgets_battles=scenario.forgets_battles,
        )
        try:
            await scenario.play(run)
        except BaseException:
            print(arena.report(), file=sys.stderr)
            raise
        finally:
            ledger.close()


def _commit() -> str:
    answer = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def _parse() -> argparse.Namespace:
    names = ", ".join(scenario.name for scenario in SCENARIOS)
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", action="append", help=f"a scenario; may be repeated: {names}")
    parser.add_argument("--quick", action="store_true", help="few rounds of each, as in make test")
    parser.add_argument("--rounds", type=int, help="rounds of each scenario")
    parser.add_argument("--seed", type=int, help="of the schedules; default: a random one, which is printed")
    parser.add_argument("--first-round", type=int, default=1, help="begin here: --rounds 1 replays one round")
    parser.add_argument("--json", type=Path, help="append the JSON lines to this file")
    parser.add_argument("--folder", type=Path, help="keep ledger, store and logs here")
    parser.add_argument("--port", type=int, help="first of 60 ports; default: free ones")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
