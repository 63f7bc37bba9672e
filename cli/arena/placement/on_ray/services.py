"""The processes that `agon up --placement ray` runs beside the arena's own: a store for the head's state, the head, a
node of this machine, and the placer. The supervisor starts each of them again; none takes the others with it.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cli.arena.child import ChildSpec, ProbeResult
from cli.arena.data_dir import DataDir
from cli.arena.embedded_redis import find_binary
from cli.arena.placement.on_ray.cluster import (
    HOST_VARIABLE,
    ClusterSettings,
    head_command,
    node_command,
    ray_environment,
    state_environment,
    temp_dir,
)
from cli.arena.placement.on_ray.ray_placement import RayPlacement
from cli.arena.ports import free_port
from cli.arena.service import service_command, service_environment
from cli.errors import CliError

STORE_VARIABLE = "AGON_CLUSTER_STORE_URL"
_NAMESPACE = "agon"
_STOP_S = 15.0
_WAIT_S = 60.0  #: of one process for the one that it needs; then it is started again
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class _StateStore:
    """The Redis that keeps the head's state. `spec` None: it is the operator's."""

    address: str
    password: str
    spec: ChildSpec | None


def cluster_specs(
    settings: ClusterSettings, address: str, data_dir: DataDir, worker_token: str, placement: RayPlacement
) -> list[ChildSpec]:
    """The processes. `address`: of this machine, for the other machines; a loopback address where there are none.
    Raises CliError."""
    folder = data_dir.cluster
    base = {**service_environment(has_keys=True), **ray_environment(worker_token)}
    specs: list[ChildSpec] = []
    head = settings.head
    if head is None:
        head = f"{ray_address(address)}:{settings.port}"
        store = _state_store(folder, data_dir, settings.port + 1)
        head_temp, wait = temp_dir(folder, "head"), _waiting_for(store.address)

        def begin() -> None:
            wait()
            # With this file, which a killed head leaves, Ray takes our node for a head that still runs.
            (head_temp / "ray_current_cluster").unlink(missing_ok=True)

        specs += [store.spec] if store.spec is not None else []
        specs.append(
            ChildSpec(
                name="ray-head",
                command=head_command(ray_address(address), settings.port, head_temp, store.password),
                environment={**base, **state_environment(store.address, _namespace(folder))},
                log_path=data_dir.logs / "ray-head.log",
                probe=_port_probe(head),
                stop_timeout_s=_STOP_S,
                before_start=begin,
            )
        )
    node = node_spec(settings, head, address, data_dir, {**base, "AGON_WORKER_TOKEN": worker_token})
    placer = ChildSpec(
        name="placer",
        command=service_command(
            "cli.arena.placement.on_ray",
            *(head, _namespace(folder), str(placement.wanted_path), str(placement.placed_path)),
        ),
        environment=base,
        log_path=data_dir.logs / "placer.log",
        probe=_freshness_probe(placement),
        stop_timeout_s=_STOP_S,
        before_start=_waiting_for(head),
    )
    return [*specs, node, placer]


def node_spec(
    settings: ClusterSettings, head: str, address: str | None, data_dir: DataDir, environment: Mapping[str, str]
) -> ChildSpec:
    """The node of this machine. `address`: of its workers, where Ray should not find it out; `environment` has the
    worker token."""
    is_loopback = address is not None and ray_address(address) != address
    log, wait = data_dir.logs / "ray-node.log", _waiting_for(head)

    def begin() -> None:
        end_strays(data_dir.path)
        wait()
        log.write_bytes(b"")

    own = {HOST_VARIABLE: address} if address is not None else {}
    return ChildSpec(
        name="ray-node",
        command=node_command(
            head,
            settings.machine,
            temp_dir(data_dir.path, "node"),
            None if is_loopback else address,
        ),
        environment={**environment, **own, "AGON_DATA_DIR": str(data_dir.path)},
        log_path=log,
        probe=_node_probe(log),
        stop_timeout_s=_STOP_S,
        before_start=begin,
        after_end=lambda: end_strays(data_dir.path),
    )


def end_strays(data_dir: Path) -> None:
    """Kill what a node of this data directory has left when it ended: a process that Ray starts for actors, and that
    has not found its node any more, waits for it for ever."""
    mark = f"AGON_DATA_DIR={data_dir}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # of another user, or it has ended
            variables = path.read_bytes().split(b"\0")
            if mark in variables and any(variable.startswith(b"RAY_RAYLET_PID=") for variable in variables):
                os.kill(int(path.parent.name), signal.SIGKILL)


def ray_address(address: str) -> str:
    """The address under which Ray's processes find this machine: it takes none of loopback."""
    is_loopback = address.startswith("127.") or address in ("localhost", "::1")
    return outward_address() if is_loopback else address


def outward_address() -> str:
    """The address from which this machine reaches others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # chooses a route; no packet is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _state_store(folder: Path, data_dir: DataDir, first_port: int) -> _StateStore:
    """The operator's Redis, or a store beside that of the votes: Ray needs a TCP port, and shows the password in the
    list of processes, so it gets no store that holds votes unless it is told to."""
    given = os.environ.get(STORE_VARIABLE)
    if given:
        parts = urlsplit(given)
        if parts.scheme != "redis" or not parts.hostname or parts.path not in ("", "/", "/0"):
            raise CliError(f"{STORE_VARIABLE} must be redis://[:PASSWORD@]HOST[:PORT]; Ray uses database 0.")
        return _StateStore(f"{parts.hostname}:{parts.port or 6379}", unquote(parts.password or ""), None)
    store = folder / "store"
    store.mkdir(mode=0o700, exist_ok=True)
    port, password, config = free_port("127.0.0.1", first_port), secrets.token_hex(16), store / "store.conf"
    config.write_text(
        f'dir "{store}"\nport {port}\nbind 127.0.0.1\nrequirepass {password}\ndaemonize no\n'
        'appendonly yes\nappendfsync everysec\nsave ""\nmaxmemory-policy noeviction\nlogfile ""\n'
    )
    config.chmod(0o600)
    address = f"127.0.0.1:{port}"
    spec = ChildSpec(
        name="cluster-store",
        command=(str(find_binary().path), str(config)),
        environment={**service_environment(), "LC_ALL": "C"},
        log_path=data_dir.logs / "cluster-store.log",
        probe=_port_probe(address),
        stop_timeout_s=_STOP_S,
        death_signal=signal.SIGTERM,
        lock_path=store / "store.lock",
    )
    return _StateStore(address, password, spec)


def _namespace(folder: Path) -> str:
    """Prefix of the head's keys, the same for every start of this arena."""
    path = folder / "namespace"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    name = f"{_NAMESPACE}-{secrets.token_hex(4)}"
    path.write_text(name)
    return name


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2.0):
            return True
    except OSError:
        return False


def _waiting_for(address: str) -> Callable[[], None]:
    """Called in a thread before a process starts that needs the one at `address`."""

    def wait() -> None:
        give_up_at = time.monotonic() + _WAIT_S
        while not _answers(address):
            if time.monotonic() > give_up_at:
                raise CliError(f"nothing answers at {address}")
            time.sleep(_POLL_S)

    return wait


def _port_probe(address: str) -> Callable[[], Awaitable[ProbeResult]]:
    async def probe() -> ProbeResult:
        is_there = await asyncio.to_thread(_answers, address)
        return ProbeResult.READY if is_there else ProbeResult.SILENT

    return probe


def _node_probe(log: Path) -> Callable[[], Awaitable[ProbeResult]]:
    """Ready when `ray start` has said so in its log, which begins anew with every start; it ends when the node does."""

    def has_joined() -> bool:
        try:
            return b"block forever" in log.read_bytes()
        except OSError:
            return False

    async def probe() -> ProbeResult:
        return ProbeResult.READY if has_joined() else ProbeResult.ALIVE

    return probe


def _freshness_probe(placement: RayPlacement) -> Callable[[], Awaitable[ProbeResult]]:
    async def probe() -> ProbeResult:
        return ProbeResult.READY if placement.is_fresh() else ProbeResult.SILENT

    return probe
