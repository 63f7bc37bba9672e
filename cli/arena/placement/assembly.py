"""Builds the supervisor, the placement and the fleet of one `agon up` from its settings."""

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import httpx

from cli.arena.child import Child, ChildSpec
from cli.arena.data_dir import DataDir, Secrets
from cli.arena.embedded_redis import EmbeddedRedis
from cli.arena.placement.fleet import Fleet
from cli.arena.placement.groups import GroupsFile, ReplicaGroup
from cli.arena.placement.local_placement import LocalPlacement
from cli.arena.placement.on_ray.ray_placement import RayPlacement
from cli.arena.placement.on_ray.services import cluster_specs, outward_address
from cli.arena.placement.placement import Needs, Placement, Replica
from cli.arena.processes import ArenaSettings, build_stages, replica_spec, worker_options
from cli.arena.supervisor import Supervisor

_WILDCARDS = ("0.0.0.0", "::")


def build_arena(
    settings: ArenaSettings,
    folder: DataDir,
    secrets: Secrets,
    store: EmbeddedRedis | None,
    client: httpx.AsyncClient,
    report: Callable[[str, str], None],
    on_change: Callable[[Sequence[Child]], None],
) -> tuple[Supervisor, Placement, Fleet]:
    """Nothing is started yet. Raises CliError."""
    stages = build_stages(settings, folder, secrets, store, client)
    file = GroupsFile(folder.groups_file)
    if settings.cluster is not None:
        folder.cluster.mkdir(mode=0o700, exist_ok=True)
        address = machine_address(settings.host)
        on_ray = RayPlacement(folder.cluster, _url_for_machines(settings, address), worker_options(settings))
        specs = cluster_specs(settings.cluster, address, folder, secrets.worker_token, on_ray)
        stages[-2:-1] = [specs]  # instead of the workers, which build_stages leaves empty
        return Supervisor(stages, report, on_change), on_ray, Fleet(on_ray, file, _given(settings))
    supervisor = Supervisor(stages, report, on_change)

    def make_spec(replica: Replica, port: int) -> ChildSpec:
        return replica_spec(settings, folder, secrets, replica, port, client)

    local = LocalPlacement(supervisor, make_spec, first_port=settings.worker_port + len(settings.processes))
    return supervisor, local, Fleet(local, file)


def machine_address(host: str) -> str:
    """The address of this machine for the others of the cluster: the one that its services listen on."""
    return outward_address() if host in _WILDCARDS else host


def _url_for_machines(settings: ArenaSettings, address: str) -> str:
    parts = urlsplit(settings.controller_url)
    if settings.host not in _WILDCARDS or parts.hostname not in ("127.0.0.1", "::1"):
        return settings.controller_url
    return f"{parts.scheme}://{address}:{settings.controller_port}"


def _given(settings: ArenaSettings) -> list[ReplicaGroup]:
    """The models of the command line, each in a process of its own on the machine that has most room."""
    needs = Needs(cpus=settings.threads_per_worker)
    return [
        ReplicaGroup(model=model.name, source=model.source, needs=needs, replicas=settings.replicas.get(model.name, 1))
        for model in settings.models
    ]
