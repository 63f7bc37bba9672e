"""`agon cluster join | status`: machines that share the workers of an arena through Ray."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.arena.data_dir import DataDir, default_data_dir
from cli.arena.placement.control import Question, ask
from cli.arena.placement.fleet import FleetView
from cli.arena.placement.on_ray.cluster import Machine, check_labels, machine_name
from cli.arena.placement.placement import Needs, ReplicaView
from cli.cluster_node import join_cluster
from cli.errors import CliError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Machines that share the workers of an arena.")

Head = Annotated[str, typer.Argument(metavar="HEAD[:PORT]", help="The machine where `agon up --placement ray` runs.")]


@app.command()
def join(
    head: Head,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the worker token of the arena. Default: AGON_WORKER_TOKEN(_FILE).")
    ] = None,
    label: Annotated[
        list[str], typer.Option("--label", help="Label of this machine, NAME or NAME=VALUE; may be repeated.")
    ] = [],  # noqa: B006 - typer's way to say "no value"
    name: Annotated[str | None, typer.Option(help="Name of this machine. Default: its host name.")] = None,
    cpus: Annotated[int | None, typer.Option(min=0, help="Cores for workers. Default: all.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs for workers. Default: all that Ray finds.")] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Address of this machine for the controllers. Default: the one from which it reaches others."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the logs. Default: AGON_DATA_DIR, or ./.agon")
    ] = None,
) -> None:
    """Offer this machine to an arena, in the foreground, until Ctrl-C: Ray starts workers here. It joins again after
    the head was gone."""
    machine = Machine(name or machine_name(), cpus, gpus, check_labels(label))
    join_cluster(head, machine, token_file=token_file, host=host, data_dir=data_dir)


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Folder of the arena. Default: AGON_DATA_DIR, or ./.agon")
    ] = None,
) -> None:
    """Show machines with labels, CPUs and GPUs, and the replicas: where they run, and how often they started again."""
    folder = DataDir(data_dir or default_data_dir()).path
    view = ask(folder, Question())
    if view is None:
        raise CliError(f"no arena runs on {folder}; run this where `agon up` runs, or give its --data-dir.")
    if as_json:
        print(view.model_dump_json(indent=2))
        return
    console = Console()
    for table in (_machines(view), _replicas(view)):
        console.print(table)
    for group in view.groups:
        if group.is_scaled:
            console.print(f"{group.model}: {group.replicas} replicas, between {group.least} and {group.most} by load")
    if view.placement.problem is not None:
        console.print(view.placement.problem, style="yellow")


def _machines(view: FleetView) -> Table:
    table = Table("machine", "address", "state", "labels", "CPUs", "GPUs", "replicas")
    for machine in view.placement.machines:
        here = [replica for replica in view.placement.replicas if replica.machine == machine.name]
        cells = (
            machine.name,
            machine.address,
            "alive" if machine.is_alive else "dead",
            ", ".join(machine.labels),
            f"{machine.cpus:g}" if view.has_machines else "",
            f"{machine.gpus:g}" if view.has_machines else "",
            str(len(here)) if machine.is_alive else "",
        )
        table.add_row(*(escape(cell) for cell in cells))
    return table


def _replicas(view: FleetView) -> Table:
    table = Table("replica", "state", "machine", "needs", "worker", "restarts", "last death")
    needs = {replica.id: replica.needs for group in view.groups for replica in group.wanted()}
    for replica in view.placement.replicas:
        table.add_row(*(escape(cell) for cell in _replica_cells(replica, _shown(needs.get(replica.id)))))
    return table


def _shown(needs: Needs | None) -> str:
    if needs is None:
        return ""
    parts = (f"{needs.cpus:g} CPUs", f"{needs.gpus} GPUs" if needs.gpus else "", needs.label or "")
    return ", ".join(part for part in parts if part)


def _replica_cells(replica: ReplicaView, needs: str) -> tuple[str, ...]:
    restarts = str(replica.restarts) if replica.restarts else ""
    return (replica.id, replica.state, replica.machine, needs, replica.url, restarts, replica.problem)
