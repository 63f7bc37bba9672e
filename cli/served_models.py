"""`agon models list | add | remove | sleep | wake | move`: what the workers of a running arena serve."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import httpx
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.arena.processes import parse_model
from cli.arena.running_arena import admin_token, arena_client, check, controller_url, is_loopback
from cli.errors import CliError
from wire.hosted_models import HostedModel, is_hosted
from wire.served_models import AdminActOnModel, AdminAddModel, AdminServed, ServedModel, WorkerModels

app = typer.Typer(add_completion=False, no_args_is_help=True)

_POLL_S = 0.2
_STATES = {"on_disk": "on disk"}

Name = Annotated[str, typer.Argument(help="Name of the model.")]
Process = Annotated[
    str | None, typer.Option("--worker", help="Only in this worker process: its URL, or the id of a worker in it.")
]
Reason = Annotated[str, typer.Option(help="Why, for the log of actions.")]
Url = Annotated[
    str | None, typer.Option("--controller", "--url", help="The controller. Default: the arena of the data directory.")
]
DataDirFlag = Annotated[
    Path | None, typer.Option("--data-dir", help="The folder in which `agon up` stored the admin token.")
]


@app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Show every model that is served: its state, memory and load."""
    with _admin(url, data_dir) as client:
        served = _read(client)
    if as_json:
        print(served.model_dump_json(indent=2))
        return
    table = Table("model", "state", "memory", "answers", "last used", "woke in", "worker")
    for process in served.processes:
        for model in process.models:
            table.add_row(*(escape(cell) for cell in _row(process, model)))
    Console().print(table)
    for process in served.processes:
        limit = "" if process.memory_limit is None else f" of {_size(process.memory_limit)}"
        print(f"{process.url}: {_size(process.memory_bytes)}{limit} in memory")
    for silent in served.silent:
        print(f"{silent}: does not answer")


@app.command()
def add(
    model: Annotated[
        str,
        typer.Argument(metavar="NAME=SOURCE", help="A folder, a GGUF file, a hub id, or openai:MODEL@https://HOST/v1."),
    ],
    worker: Annotated[
        str | None, typer.Option("--worker", help="In this worker process. Default: the one with the fewest models.")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option(help="Hosted model: the worker's environment variable that has the key.")
    ] = None,
    key_file: Annotated[
        str | None, typer.Option(help="Hosted model: the worker's file, of mode 600, that has the key.")
    ] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="Hosted model: most requests in a minute.")] = None,
    tokens_per_day: Annotated[int | None, typer.Option(help="Hosted model: most tokens in a UTC day.")] = None,
    cost_per_day: Annotated[
        float | None, typer.Option(help="Hosted model: most cost in a UTC day, in the unit of the prices.")
    ] = None,
    prompt_price: Annotated[float | None, typer.Option(help="Hosted model: of a million prompt tokens.")] = None,
    answer_price: Annotated[float | None, typer.Option(help="Hosted model: of a million tokens of answers.")] = None,
    option: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="Hosted model: any other option of docs/hosted.md.")
    ] = [],  # noqa: B006 - typer's way to say "no value"
    reason: Reason = "",
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Load a model while the others answer. It is served after a restart, too."""
    address = controller_url(url, data_dir)
    given = {
        "key_env": key_env,
        "key_file": key_file,
        "requests_per_minute": requests_per_minute,
        "tokens_per_day": tokens_per_day,
        "cost_per_day": cost_per_day,
        "prompt_price": prompt_price,
        "answer_price": answer_price,
    }
    model = with_options(model, {name: value for name, value in given.items() if value is not None}, option)
    if is_loopback(address) or is_hosted(_source(model)):
        parsed = parse_model(model)  # the worker is on this machine and finds the same path
        name, source = parsed.name, parsed.source
    else:
        name, _, source = model.rpartition("=") if "=" in model else (model.rpartition("/")[2], "", model)
    body = AdminAddModel(name=name, source=source, worker=worker, reason=reason)
    with _admin(url, data_dir) as client:
        check(client.post("/arena/admin/served", json=body.model_dump(exclude_none=True)))
        print(f"{name} is being loaded")
        row = _await(client, name, {"resident", "failed"})
    if row.error is not None:
        raise CliError(row.error)
    where = "by another server" if is_hosted(source) else f"{_size(row.memory_bytes)} in memory"
    print(f"{name} is served, {where}")


def with_options(model: str, given: Mapping[str, object], others: Sequence[str]) -> str:
    """`NAME=SOURCE` with options of a hosted model added to the source. Raises CliError."""
    pairs = [text.partition("=") for text in others]
    options = {**{name: value for name, _, value in pairs}, **given}
    source = _source(model)
    if not options:
        return model
    if not is_hosted(source):
        raise CliError(f"the option {next(iter(options))} is for hosted models, openai:MODEL@https://HOST/v1.")
    try:
        known = HostedModel.parse(source).model_dump(exclude_defaults=True)
        return model.removesuffix(source) + str(HostedModel.of(**{**known, **options}))
    except ValueError as error:
        raise CliError(f"{error}.") from None


def _source(model: str) -> str:
    return model if is_hosted(model) else model.partition("=")[2] or model


def _action_command(action: Literal["remove", "sleep", "wake"], purpose: str, done: str) -> None:
    """Add the command of an action that needs no more than the model's name. purpose: its help."""

    @app.command(action, help=purpose)
    def act(
        name: Name, worker: Process = None, reason: Reason = "", url: Url = None, data_dir: DataDirFlag = None
    ) -> None:
        _act(AdminActOnModel(name=name, action=action, worker=worker, reason=reason), url, data_dir)
        print(f"{name} {done}")


_action_command(
    "remove",
    "Take a model out of the arena; it finishes its answers first. A restart does not serve it either.",
    "finishes its answers and is gone then",
)
_action_command(
    "sleep", "Give back a model's memory. It stays in the arena: the next battle, chat or request wakes it.", "sleeps"
)
_action_command("wake", "Bring a model into memory now.", "is in memory")


@app.command()
def move(
    name: Name,
    to: Annotated[str, typer.Option("--to", metavar="WORKER", help="A worker process: its URL, or an id in it.")],
    worker: Process = None,
    reason: Reason = "",
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Load a model in another worker process, then remove it where it was."""
    _act(AdminActOnModel(name=name, action="move", worker=worker, to=to, reason=reason), url, data_dir)
    print(f"{name} is served by {to}")


@contextmanager
def _admin(url: str | None, data_dir: Path | None) -> Iterator[httpx.Client]:
    with arena_client(controller_url(url, data_dir), admin_token(data_dir)) as client:
        yield client


def _act(body: AdminActOnModel, url: str | None, data_dir: Path | None) -> AdminServed:
    with _admin(url, data_dir) as client:
        answer = check(client.post("/arena/admin/served/act", json=body.model_dump(exclude_none=True)))
    return AdminServed.model_validate_json(answer.content)


def _read(client: httpx.Client) -> AdminServed:
    return AdminServed.model_validate_json(check(client.get("/arena/admin/served")).content)


def _await(client: httpx.Client, name: str, states: set[str]) -> ServedModel:
    """The model's row once it is in one of the states."""
    while True:
        rows = [row for process in _read(client).processes for row in process.models if row.name == name]
        for row in rows:
            if row.residence in states:
                return row
        time.sleep(_POLL_S)


def _row(process: WorkerModels, model: ServedModel) -> tuple[str, ...]:
    state = _STATES.get(model.residence, model.residence)
    memory = _size(model.memory_bytes) if model.memory_bytes else f"({_size(model.wanted_bytes)})"
    if is_hosted(model.source):
        state, memory = "hosted", ""
    load = f"{model.running} running, {model.waiting} waiting" if model.running or model.waiting else ""
    woke = "" if model.wake_s is None else f"{model.wake_s:.2f} s"
    trouble = model.error or model.problem
    shown = state if trouble is None else f"{state}: {trouble}"
    where = process.worker_ids.get(model.name, process.url)
    return (model.name, shown, memory, load, f"{model.idle_s:.0f} s ago", woke, where)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"
