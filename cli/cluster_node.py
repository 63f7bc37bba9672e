"""This machine's node in the cluster of an arena: what `agon cluster join` and `agon join HEAD` run."""

import asyncio
import os
import signal
from pathlib import Path

from cli.arena.data_dir import DataDir, Running, default_data_dir
from cli.arena.placement.on_ray.cluster import (
    ClusterSettings,
    Machine,
    check_labels,
    ray_environment,
    require_ray,
    split_address,
)
from cli.arena.placement.on_ray.services import node_spec
from cli.arena.service import service_environment
from cli.arena.status import StatusView, choose_view
from cli.arena.supervisor import Supervisor
from cli.errors import CliError

_REFRESH_S = 1.0


def join_cluster(
    head: str,
    machine: Machine,
    *,
    token_file: Path | None = None,
    host: str | None = None,
    data_dir: Path | None = None,
) -> None:
    """Run this machine's node until a signal. `head`: `HOST` or `HOST:PORT`. Raises CliError, also where Ray is not
    installed."""
    require_ray("`agon cluster join`")
    check_labels((*machine.labels, machine.name))
    address = split_address(head)
    token = _token(token_file)
    folder = DataDir(data_dir or default_data_dir())
    folder.create()
    folder.lock(Running(os.getpid(), f"ray://{address}", f"ray://{address}"))
    environment = {
        **service_environment(has_keys=True),
        **ray_environment(token),
        "AGON_WORKER_TOKEN": token,
    }
    try:
        spec = node_spec(ClusterSettings(machine, head=address), address, host, folder, environment)
        asyncio.run(_run(Supervisor([[spec]], (view := choose_view()).event), view, f"{machine.name} in {address}"))
    finally:
        folder.unlock()


async def _run(supervisor: Supervisor, view: StatusView, headline: str) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    starting = asyncio.create_task(supervisor.start())
    try:
        while not stopped.is_set() and not supervisor.everything_failed:
            view.refresh(supervisor.children, {}, headline)
            try:
                async with asyncio.timeout(_REFRESH_S):
                    await stopped.wait()
            except TimeoutError:
                continue
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await supervisor.stop()
        view.close()
    if not stopped.is_set():
        raise CliError("the node does not start; its log says why.")


def _token(token_file: Path | None) -> str:
    path = token_file or (Path(found) if (found := os.environ.get("AGON_WORKER_TOKEN_FILE")) else None)
    if path is None:
        token = os.environ.get("AGON_WORKER_TOKEN", "")
    else:
        try:
            token = path.expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise CliError(f"cannot read {path}: {error.strerror}.") from None
    if not token:
        raise CliError("the worker token of the arena is needed: --token-file, or AGON_WORKER_TOKEN(_FILE).")
    return token
