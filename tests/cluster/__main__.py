"""`python -m tests.cluster`: an arena over three machines under Ray, all of it on this one; prints JSON with commit and
machine. `make cluster` runs it in an environment that has Ray."""

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

from cli.bench import record
from tests.cluster.machines import RunningCluster, running_cluster
from tests.cluster.scenarios import SCENARIOS

#: Flags of `agon cluster join`: GPUs are told to Ray, and an echo needs none.
MACHINES = {
    "m1": ["--label", "rack=a", "--cpus", "4", "--gpus", "1"],
    "m2": ["--label", "rack=a", "--cpus", "4", "--gpus", "2"],
    "m3": ["--label", "rack=b", "--cpus", "4", "--gpus", "0"],
}
ENVIRONMENT = {"AGON_ECHO_TOKENS_PER_S": "20", "AGON_MAX_RUNNING": "8"}


def main() -> None:
    """The scenarios follow one another in one arena, so that a later one finds what an earlier one left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="after placement; may be repeated")
    parser.add_argument("--rounds", type=int, default=1, help="of machine-killed; the machine joins again in between")
    asked = parser.parse_args()
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="agon-cluster-") as folder,
        running_cluster(Path(folder), MACHINES, **ENVIRONMENT) as cluster,
    ):
        for name, scenario in SCENARIOS.items():
            if asked.only and name not in ("placement", *asked.only):
                continue
            for number in range(asked.rounds if name == "machine-killed" else 1):
                figures = scenario(cluster)
                rows.append({"scenario": name, "round": number + 1, **figures})
                print(f"{name}: {json.dumps(figures)}", flush=True)
                if "killed" in figures:
                    machine = str(figures["killed"])
                    cluster.join(machine, *MACHINES[machine])
                    cluster.wait("it joins again", partial(_is_alive, cluster, machine))
    print(json.dumps(record.document("cluster", {"machines": len(MACHINES)}, rows)))


def _is_alive(cluster: RunningCluster, name: str) -> bool:
    return any(machine.name == name and machine.is_alive for machine in cluster.view().placement.machines)


if __name__ == "__main__":
    main()
