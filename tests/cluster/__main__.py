"""`python -m tests.cluster`: an arena over three machines under Ray, all of it on this one; prints JSON with commit and
machine. `make cluster` runs it in an environment that has Ray."""

import argparse
import contextlib
import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cli.bench import record
from tests.cluster.machines import RunningCluster, running_cluster
from tests.cluster.scenarios import SCENARIOS, encrypted

#: Flags of `agon cluster join`: GPUs are told to Ray, and an echo needs none.
MACHINES = {
    "m1": ["--label", "rack=a", "--cpus", "4", "--gpus", "1"],
    "m2": ["--label", "rack=a", "--cpus", "4", "--gpus", "2"],
    "m3": ["--label", "rack=b", "--cpus", "4", "--gpus", "0"],
}
CERTIFICATES = Path(__file__).parents[1] / "certificates"
TLS = {
    "AGON_TLS_CERT_FILE": str(CERTIFICATES / "server.pem"),
    "AGON_TLS_KEY_FILE": str(CERTIFICATES / "server.key"),
    "AGON_CA_FILE": str(CERTIFICATES / "ca.pem"),
}
_ENCRYPTED = "encrypted"
ENVIRONMENT = {"AGON_ECHO_TOKENS_PER_S": "20", "AGON_MAX_RUNNING": "8"}


def main() -> None:
    """The scenarios follow one another in one arena, so that a later one finds what an earlier one left; the last one
    has an arena that speaks TLS."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=[*SCENARIOS, _ENCRYPTED], help="may be repeated")
    parser.add_argument("--rounds", type=int, default=1, help="of machine-killed; the machine joins again in between")
    asked = parser.parse_args()
    rows = [] if asked.only == [_ENCRYPTED] else _run_scenarios(asked.only, asked.rounds)
    if not asked.only or _ENCRYPTED in asked.only:
        with _cluster({"m1": MACHINES["m1"]}, **TLS) as cluster:
            rows.append(_shown(_ENCRYPTED, 1, encrypted(cluster)))
    print(json.dumps(record.document("cluster", {"machines": len(MACHINES)}, rows)))


def _run_scenarios(only: list[str] | None, rounds: int) -> list[dict[str, Any]]:
    """Those in `only`, after placement; None: all."""
    rows = []
    with _cluster(MACHINES) as cluster:
        for name, scenario in SCENARIOS.items():
            if only and name not in ("placement", *only):
                continue
            for number in range(rounds if name == "machine-killed" else 1):
                rows.append(_shown(name, number + 1, figures := scenario(cluster)))
                if "killed" in figures:
                    machine = str(figures["killed"])
                    cluster.join(machine, *MACHINES[machine])
                    cluster.wait("it joins again", partial(_is_alive, cluster, machine))
    return rows


@contextlib.contextmanager
def _cluster(machines: dict[str, list[str]], **environment: str) -> Iterator[RunningCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="agon-cluster-") as folder,
        running_cluster(Path(folder), machines, **ENVIRONMENT, **environment) as cluster,
    ):
        yield cluster


def _shown(name: str, number: int, figures: dict[str, Any]) -> dict[str, Any]:
    print(f"{name}: {json.dumps(figures)}", flush=True)
    return {"scenario": name, "round": number, **figures}


def _is_alive(cluster: RunningCluster, name: str) -> bool:
    return any(machine.name == name and machine.is_alive for machine in cluster.view().placement.machines)


if __name__ == "__main__":
    main()
