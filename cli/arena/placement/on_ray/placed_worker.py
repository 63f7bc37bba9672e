"""The worker process that an actor of Ray keeps on its machine: address, environment, probe. Imports no Ray, starts
nothing."""

import re
from collections.abc import Mapping
from pathlib import Path

import httpx

from cli.arena.child import ChildSpec
from cli.arena.placement.worker_process import (
    BAD_CHECKPOINT,
    BAD_SETTINGS,
    PORT_TAKEN,
    STOP_S,
    WorkerOrder,
    worker_command,
)
from cli.arena.service import base_url, http_probe

#: Ray sets OMP_NUM_THREADS to the CPUs of an actor; the worker's own flag says how many threads it has.
_OF_RAY = re.compile(r"RAY_|OMP_NUM_THREADS$")


def worker_url(host: str, port: int, machine: Mapping[str, str]) -> str:
    """URL of the worker. `machine`: the environment of its machine; with a certificate in it the worker speaks TLS."""
    return base_url(host, port, "https" if machine.get("AGON_TLS_CERT_FILE") else "http")


def placed_worker(
    order: WorkerOrder, host: str, port: int, machine: Mapping[str, str], client: httpx.AsyncClient
) -> ChildSpec:
    """The process. It gets the environment of its machine, in which the worker token and the files of TLS are, without
    what Ray has added. `client` must accept the machine's certificate for `host`."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", order.replica.id)
    logs = Path(machine.get("AGON_DATA_DIR") or ".agon") / "logs"
    own = {name: value for name, value in machine.items() if not _OF_RAY.match(name)}
    return ChildSpec(
        name=order.replica.id,
        command=worker_command(order, host=host, port=port, is_gpu_chosen=True),
        environment={**own, "PYTHONUNBUFFERED": "1"},
        log_path=logs / f"worker-{name}.log",
        probe=http_probe(client, f"{worker_url(host, port, machine)}/ready"),
        stop_timeout_s=STOP_S,
        final_exit_codes=frozenset({BAD_SETTINGS, BAD_CHECKPOINT, PORT_TAKEN}),
    )
