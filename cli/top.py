"""`agon top`: a running arena at a glance, again and again: models, load, tokens a second, pool, queue, errors."""

import json
import time
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.arena.running_arena import admin_token, arena_client, check, controller_url
from cli.errors import CliError
from cli.votes import DataDirFlag, Url
from wire.admin import FailuresView
from wire.workers import WorkerView

app = typer.Typer(add_completion=False)

_HOUR_S = 3600.0
_LATE_S = 4.0  #: a heartbeat that is older counts as late; AGON_WORKER_LEASE_S
_MAX_FAILURES = 5


@app.command()
def top(
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one look as JSON.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Watch a running arena until Ctrl-C."""
    address = controller_url(url, data_dir)
    with arena_client(address, admin_token(data_dir)) as client:
        workers, failures = _look(client)
        if as_json:
            print(json.dumps({"workers": [_values(view) for view in workers], "failures": _recent(failures)}, indent=2))
            return
        console = Console()
        if once or not console.is_terminal:
            console.print(_picture(address, workers, failures))
            return
        with Live(_picture(address, workers, failures), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                try:
                    picture = _picture(address, *_look(client))
                except (httpx.HTTPError, CliError) as error:  # a controller that starts again comes back
                    picture = Group(Text(f"{address} does not answer: {error}", style="red"))
                live.update(picture, refresh=True)


def _look(client: httpx.Client) -> tuple[list[WorkerView], FailuresView]:
    rows = check(client.get("/arena/workers")).json()
    failures = FailuresView.model_validate_json(check(client.get("/arena/admin/failures")).content)
    return sorted((WorkerView.model_validate(row) for row in rows), key=lambda view: view.model), failures


def _values(view: WorkerView) -> dict[str, Any]:
    """What the table shows of one worker. Shares are between 0 and 1."""
    load = view.load
    shown: dict[str, Any] = {"model": view.model, "worker": view.worker_id, "state": view.state}
    if load is not None:
        total = load.kv_bytes_total
        shown |= {
            "running": load.running,
            "waiting": load.waiting,
            "tokens_per_s": round(load.tokens_per_s, 1),
            "pool_used": round(load.kv_bytes_used / total, 3) if total else None,
            "pool_cached": round(load.kv_bytes_evictable / total, 3) if total else None,
        }
    return shown | {"leases": view.in_flight, "heartbeat_age_s": view.last_heartbeat_age_s}


def _recent(failures: FailuresView) -> list[dict[str, Any]]:
    """Kinds of failure of the last hour, the newest first."""
    since = time.time() - _HOUR_S
    found = [failure for failure in failures.failures if failure.last >= since]
    return [failure.model_dump(mode="json") for failure in sorted(found, key=lambda failure: -failure.last)]


def _picture(address: str, workers: list[WorkerView], failures: FailuresView) -> Group:
    table = Table(title=f"{address}   {time.strftime('%H:%M:%S')}", title_justify="left")
    names = ("model", "state", "running", "waiting", "tokens/s", "pool", "cached", "leases", "heartbeat", "worker")
    for name in names:
        table.add_column(name, justify="left" if name in ("model", "state", "worker") else "right")
    for view in workers:
        row = _values(view)
        age = row["heartbeat_age_s"]
        late = age is not None and age > _LATE_S
        table.add_row(
            Text(row["model"]),
            Text(row["state"], style="green" if row["state"] == "ready" else "yellow"),
            *(_number(row.get(name)) for name in ("running", "waiting", "tokens_per_s")),
            *(_percent(row.get(name)) for name in ("pool_used", "pool_cached")),
            _number(row["leases"]),
            Text("" if age is None else f"{age:.1f} s", style="red" if late else ""),
            Text(row["worker"]),
        )
    lines = [
        Text(f"{one['cause']}: {one['count']} today, {one['model'] or 'no model'} {one['worker_id']}", style="yellow")
        for one in _recent(failures)[:_MAX_FAILURES]
    ]
    return Group(table, Text("errors of the last hour:" if lines else "no errors in the last hour"), *lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"
