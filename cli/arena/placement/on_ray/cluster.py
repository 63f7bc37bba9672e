"""Ray's own processes: the command lines and environments of its head and of its nodes. Imports no Ray, starts nothing.

Ray is a control plane here: it knows machines, CPUs, GPUs and labels, and starts actors. No token passes through it.
"""

import hashlib
import importlib.util
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.arena.placement.placement import LABEL_PATTERN
from cli.errors import CliError

DEFAULT_PORT = 6379  #: of Ray's head
MACHINE_LABEL = "agon-machine"  #: a node's label with the name that people know it by
HOST_VARIABLE = "AGON_CLUSTER_HOST"  #: address of a machine under which controllers reach its workers

#: Ray keeps no objects for us; this is the smallest object store that it takes (75 MiB and a little).
_OBJECT_STORE_BYTES = 80_000_000
#: A dead machine is noticed after 0.6 s (3 x 0.2 s) and one that hangs after some 5 s, by default after 15 and 40 s. A
#: machine that has lost the head waits a day for it, by default one minute. A process that died while it started,
#: because the head was gone then, holds up the next one for 10 s, by default for a minute. Ray must not kill workers to
#: save memory, and starts no idle process by itself: the placer has one started on each machine.
_RECONNECT = "gcs_rpc_server_reconnect_timeout_s"
_SYSTEM_CONFIG = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 200,
    "health_check_timeout_ms": 1500,
    "health_check_failure_threshold": 3,
    _RECONNECT: 86400,
    "worker_register_timeout_seconds": 10,
    "memory_monitor_refresh_ms": 0,
    "prestart_worker_first_driver": False,
    "enable_worker_prestart": False,
    "enable_metrics_collection": False,
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine offers to the cluster. `cpus` and `gpus` None: as many as Ray finds."""

    name: str
    cpus: int | None = None
    gpus: int | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The flags of `agon up --placement ray`."""

    machine: Machine
    port: int = DEFAULT_PORT  #: of the head that this arena starts
    head: str | None = None  #: `HOST:PORT` of a cluster that exists; None: the arena starts one


def require_ray(what: str) -> None:
    """Raise CliError where Ray is not installed. `what` needs it."""
    if importlib.util.find_spec("ray") is None:
        raise CliError(f"{what} needs Ray, which is not installed: `pip install 'agon[cluster]'` has it.")


def ray_environment(worker_token: str) -> Mapping[str, str]:
    """Variables of every process of the cluster. Ray's token is derived from the worker token, so that a machine needs
    one secret only; a token of an existing cluster, in the environment, is kept."""
    own = {
        "RAY_USAGE_STATS_ENABLED": "0",
        # A raylet reads how long it may wait for the head before it has heard of the head's settings.
        f"RAY_{_RECONNECT}": str(_SYSTEM_CONFIG[_RECONNECT]),
        # By default (15) actors, and with them our workers, give way to everything else on their machine.
        "RAY_worker_niceness": "0",
    }
    if "RAY_AUTH_MODE" in os.environ:
        return own
    return {
        **own,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": hashlib.sha256(f"agon cluster {worker_token}".encode()).hexdigest(),
    }


def state_environment(store: str, namespace: str) -> Mapping[str, str]:
    """Variables of the head: the Redis `HOST:PORT` that keeps its state, and the prefix of its keys there."""
    return {"RAY_REDIS_ADDRESS": store, "RAY_external_storage_namespace": namespace}


def head_command(address: str, port: int, temp_dir: Path, store_password: str) -> tuple[str, ...]:
    """The head on this machine. It offers no CPU: a machine has a node beside it, which outlives the head."""
    # The password is on the command line of Ray's gcs_server in any case.
    return (
        *_ray_start("--head", "--node-ip-address", address, "--port", str(port), "--num-cpus", "0", "--num-gpus", "0"),
        *("--include-dashboard", "false", "--temp-dir", str(temp_dir)),
        *("--redis-password", store_password, "--system-config", json.dumps(_SYSTEM_CONFIG)),
    )


def node_command(head: str, machine: Machine, temp_dir: Path, address: str | None = None) -> tuple[str, ...]:
    """A node that joins the head at `HOST:PORT`. `address`: of this machine, where Ray should not find it out."""
    labels = {MACHINE_LABEL: machine.name, **dict(_label(text) for text in machine.labels)}
    flags = ["--address", head, "--temp-dir", str(temp_dir)]
    flags += ["--labels", ",".join(f"{name}={value}" for name, value in labels.items())]
    if machine.cpus is not None:
        flags += ["--num-cpus", str(machine.cpus)]
    if machine.gpus is not None:
        flags += ["--num-gpus", str(machine.gpus)]
    if address is not None:
        flags += ["--node-ip-address", address]
    return _ray_start(*flags)


def selector(label: str | None) -> dict[str, str]:
    """Ray's label selector for a replica that runs only on machines with the label."""
    return {} if label is None else dict([_label(label)])


def shown_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """A node's labels as people give them, without those of Ray and of Agon itself."""
    return tuple(
        name if value == _PRESENT else f"{name}={value}"
        for name, value in sorted(labels.items())
        if name != MACHINE_LABEL and not name.startswith("ray.io/")
    )


def temp_dir(data_dir: Path, role: str) -> Path:
    """Ray's folder of one process, below the system's temporary folder because names of sockets are short. Nodes that
    start at the same time must not share one."""
    digest = hashlib.sha256(f"{data_dir.absolute()} {role}".encode()).hexdigest()[:8]
    return Path(tempfile.gettempdir()) / f"agon-ray-{os.getuid()}-{digest}"


_PRESENT = "true"  #: value of a label that has only a name


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value or _PRESENT


def _ray_start(*flags: str) -> tuple[str, ...]:
    """--block: the command ends when one of its processes does, and they end with it."""
    return (
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"),
        *("--object-store-memory", str(_OBJECT_STORE_BYTES), "--include-log-monitor", "false"),
        # Ports by the system: Ray's own range would take some that an arena may use.
        *("--dashboard-agent-listen-port", "0", "--min-worker-port", "0", "--max-worker-port", "0"),
        *("--log-style", "record", "--log-color", "false", *flags),
    )


def machine_name() -> str:
    """The name of this machine as a label's value."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()).strip(".-")[:63] or "machine"


def split_address(text: str) -> str:
    """`HOST:PORT` from `HOST` or `HOST:PORT`. Raises CliError."""
    host, separator, port = text.rpartition(":")
    if not separator:
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdigit() or "/" in host:
        raise CliError(f"{text!r} is no address of a cluster's head; give HOST or HOST:PORT.")
    return f"{host}:{port}"


def check_labels(texts: Sequence[str]) -> tuple[str, ...]:
    """Labels that a person gave. Raises CliError."""
    for text in texts:
        if not re.fullmatch(LABEL_PATTERN, text):
            raise CliError(f"{text!r} is no label; a label is NAME or NAME=VALUE of letters, digits, dots and dashes.")
    return tuple(texts)
