"""What placing workers through Ray costs: the time to a first token, and idle processes. Prints one JSON document.

    python -m benchmarks.cluster [--requests N] [--seconds N]

Needs Ray; `make cluster` makes an environment that has it (`.venv-cluster/bin/python -m benchmarks.cluster`). Three
machines are processes of this one. Two workers of the same model answer in turns through one controller: one that an
actor of Ray has started, and one that was started by hand and registered itself.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from cli.bench import record
from tests.cluster.machines import RunningCluster, command_of, descendants, running_cluster

_MACHINES = {"m1": ["--cpus", "4", "--gpus", "0"], "m2": ["--cpus", "4", "--gpus", "0"]}
_PORT = 9871
_WARM = 20
_SETTLE_S = 15.0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300, help="to each of the two workers, in turns")
    parser.add_argument("--seconds", type=float, default=30.0, help="over which idle processes are watched")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    settings = {"requests": chosen.requests, "seconds": chosen.seconds}
    with (
        tempfile.TemporaryDirectory(prefix="agon-bench-") as folder,
        running_cluster(Path(folder), _MACHINES, AGON_ECHO_TOKENS_PER_S="10000") as cluster,
    ):
        cluster.agon("models", "add", f"placed={cluster.model}")
        rows = [_first_tokens(cluster, chosen.requests)]
        time.sleep(_SETTLE_S)
        rows += _idle(cluster, chosen.seconds)
    record.write(chosen.json, record.document("cluster", settings, rows))


def _first_tokens(cluster: RunningCluster, num_requests: int) -> dict[str, Any]:
    """Medians of both workers, and of the differences of neighbouring requests."""
    command = [sys.executable, "-P", "-m", "model_worker", "--model", f"by-hand={cluster.model}", "--engine", "echo"]
    command += ["--port", str(_PORT), "--controller", cluster.up.controller_url, "--threads", "1", "--device", "cpu"]
    environment = {**cluster.environment, "AGON_WORKER_TOKEN": cluster.secrets()["worker_token"]}
    by_hand = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        cluster.wait("the other worker", lambda: bool(cluster.registered("by-hand")))
        with httpx.Client(base_url=cluster.up.controller_url, trust_env=False, timeout=60) as client:
            times: dict[str, list[float]] = {"placed": [], "by-hand": []}
            for number in range(_WARM + num_requests):
                for model in ("placed", "by-hand") if number % 2 else ("by-hand", "placed"):
                    took_ms = _first_token_ms(client, model)
                    if number >= _WARM:
                        times[model].append(took_ms)
    finally:
        by_hand.terminate()
        by_hand.wait()
    differences = sorted(one - other for one, other in zip(times["placed"], times["by-hand"], strict=True))
    return {
        "measured": "time to the first token through the controller",
        "with_ray_ms_p50": round(statistics.median(times["placed"]), 3),
        "without_ray_ms_p50": round(statistics.median(times["by-hand"]), 3),
        "difference_ms_p50": round(statistics.median(differences), 3),
        "difference_ms_quartiles": [round(value, 3) for value in statistics.quantiles(differences, n=4)],
    }


def _first_token_ms(client: httpx.Client, model: str) -> float:
    body = {"model": model, "messages": [{"role": "user", "content": "one two three"}], "stream": True}
    started, took_ms = time.perf_counter(), 0.0
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        for line in answer.iter_lines():
            if not took_ms and '"content":"' in line and '"content":""' not in line:
                took_ms = (time.perf_counter() - started) * 1000
    assert took_ms, f"{model} gave no token"
    return took_ms


def _idle(cluster: RunningCluster, seconds: float) -> list[dict[str, Any]]:
    """Memory (PSS) and CPU time of what Ray adds, by part."""
    parts: dict[str, list[int]] = {"head": [], "store of the head": [], "node": [], "placer": [], "actor": []}
    roots = {pid: role for pid in descendants(cluster.up.process.pid) if (role := _role(command_of(pid))) is not None}
    for pid, role in roots.items():
        parts[role] += [pid, *descendants(pid)]
    machine = cluster.machines[cluster.replicas("placed")[0].machine].pids()
    actors = [pid for pid in machine if command_of(pid)[0].startswith("ray::WorkerActor")]
    workers = [pid for pid in machine if "model_worker" in command_of(pid)]
    parts["node"] = [pid for pid in machine if pid not in (*actors, *workers)]
    parts["actor"] = actors
    before = {part: sum(map(_cpu_s, pids)) for part, pids in parts.items()}
    time.sleep(seconds)
    return [
        {
            "measured": "idle",
            "part": part,
            "processes": len(pids),
            "pss_mib": round(sum(map(_pss_mib, pids))),
            "cpu_percent_of_a_core": round(100 * (sum(map(_cpu_s, pids)) - before[part]) / seconds, 2),
        }
        for part, pids in parts.items()
    ]


def _role(command: list[str]) -> str | None:
    if "--head" in command:
        return "head"
    if "cli.arena.placement.on_ray" in command:
        return "placer"
    # The server names itself by its address; that of the votes has a socket instead.
    is_store = "valkey-server" in command[0] or "redis-server" in command[0]
    return "store of the head" if is_store and "127.0.0.1:" in command[0] else None


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split("\nPss:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
