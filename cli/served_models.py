"""`agon models list | add | remove | scale | sleep | wake | move`: what the workers of a running arena serve."""

import json
import sys
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

from cli.arena.placement.fleet import FleetView
from cli.arena.placement.placement import MAX_REPLICAS
from cli.arena.processes import parse_model
from cli.arena.running_arena import admin_token, arena_client, check, controller_url, is_loopback
from cli.arena.status import CHAT_FORMS
from cli.errors import CliError
from cli.placed_models import PlacedModels, replica_group
from wire.hosted_models import HostedModel, is_hosted
from wire.served_models import MAX_MODELS, AdminActOnModel, AdminAddModel, AdminServed, ServedModel, WorkerModels

app = typer.Typer(add_completion=False, no_args_is_help=True)

_POLL_S = 0.2
_STATES = {"on_disk": "on disk"}

Name = Annotated[str, typer.Argument(help="Name of the model.")]
Process = Annotated[
    str | None, typer.Option("--worker", help="Only in this worker process: its URL, or the id of a worker in it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what became of it as JSON.")]
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
    isolate: Annotated[
        bool, typer.Option("--isolate", help="In a process of its own, which `agon up` of this machine starts.")
    ] = False,
    replicas: Annotated[
        int | None, typer.Option(min=1, max=MAX_REPLICAS, help="In so many processes of its own.")
    ] = None,
    least: Annotated[
        int | None, typer.Option("--min", min=1, help="Their number follows the load, and is never less than this.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, help="Their number follows the load, and is never more than this.")
    ] = None,
    cpus: Annotated[
        float | None, typer.Option(min=0, help="Cores and threads of each of them. Default: 1, or 0 with GPUs.")
    ] = None,
    gpus: Annotated[
        int, typer.Option(min=0, help="GPUs of each of them, on one machine: tensor parallelism. In a cluster.")
    ] = 0,
    on: Annotated[
        str | None, typer.Option("--on", metavar="LABEL", help="Only on machines of the cluster with this label.")
    ] = None,
    as_json: AsJson = False,
    reason: Reason = "",
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Load a model while the others answer. It is served after a restart, too.

    It shares a worker process with others where one has room. Otherwise, and with --isolate, --replicas or what else a
    process of its own has, `agon up` starts processes for it.
    """
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
    name, source = _named(model, address)
    placed = PlacedModels(data_dir)
    fleet = placed.view() if url is None else None
    wants_own = isolate or gpus > 0 or any(flag is not None for flag in (replicas, least, most, cpus, on))
    if wants_own and worker is not None:
        raise CliError("--worker names a process that exists; leave it out for processes of its own.")
    if wants_own or (fleet is not None and fleet.has_machines and worker is None):
        _check_own(source)
        group = replica_group(name, source, replicas=replicas, least=least, most=most, cpus=cpus, gpus=gpus, label=on)
        done = placed.add(group)
        with _admin(url, data_dir) as client:
            _tell_placed(name, done + _note(_rows(client, name)), as_json=as_json)
        return
    with _admin(url, data_dir) as client:
        if fleet is not None and worker is None:
            worker = _shared_process(client, fleet)
            if worker is None:
                print("no worker process has room for it", file=sys.stderr)
                done = placed.add(replica_group(name, source))
                _tell_placed(name, done + _note(_rows(client, name)), as_json=as_json)
                return
        body = AdminAddModel(name=name, source=source, worker=worker, reason=reason)
        check(client.post("/arena/admin/served", json=body.model_dump(exclude_none=True)))
        print(f"{name} is being loaded", file=sys.stderr)
        row = _await(client, name, {"resident", "failed"})
        if row.error is not None and fleet is not None and "+" not in source:
            act = AdminActOnModel(name=name, action="remove", worker=worker, reason=reason)
            check(client.post("/arena/admin/served/act", json=act.model_dump(exclude_none=True)))
            print(f"the worker process refuses it: {row.error}", file=sys.stderr)
            done = placed.add(replica_group(name, source))
            _tell_placed(name, done + _note(_rows(client, name)), as_json=as_json)
            return
        served = _read(client)
    if row.error is not None:
        raise CliError(row.error)
    where = "by another server" if is_hosted(source) else f"{_size(row.memory_bytes)} in memory"
    _tell(f"{name} is served, {where}{_note([row])}", served, as_json=as_json)


def _named(model: str, address: str) -> tuple[str, str]:
    """Name and source. A path is that of the worker's machine, which is this one where the controller is."""
    source = _source(model)
    if is_loopback(address) or is_hosted(source) or Path(source).expanduser().exists():
        parsed = parse_model(model)
        return parsed.name, parsed.source
    return (model.partition("=")[0], source) if "=" in model else (model.rpartition("/")[2], model)


def _check_own(source: str) -> None:
    if "+" in source and not is_hosted(source) and not Path(source).exists():
        raise CliError("an adapter shares the process of its base.")


def _shared_process(client: httpx.Client, fleet: FleetView) -> str | None:
    """The process with the fewest models of those that are there to be shared; None if none has room."""
    own = {replica.url for replica in fleet.placement.replicas}
    shared = [process for process in _read(client).processes if process.url not in own]
    with_room = [process for process in shared if len(process.models) < MAX_MODELS]
    return min(with_room, key=lambda process: len(process.models)).url if with_room else None


@app.command()
def scale(
    name: Name,
    replicas: Annotated[
        int | None, typer.Argument(min=1, max=MAX_REPLICAS, help="Worker processes from now on.")
    ] = None,
    least: Annotated[int | None, typer.Option("--min", min=1, help="Follow the load, with at least so many.")] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Follow the load, with at most so many.")] = None,
    as_json: AsJson = False,
    data_dir: DataDirFlag = None,
) -> None:
    """Change the number of processes that a model has of its own, or let it follow the load between two bounds."""
    if replicas is None and least is None and most is None:
        raise CliError("give the number of replicas, or --min and --max.")
    group = PlacedModels(data_dir).scale(name, replicas, least, most)
    bounds = f", between {group.least} and {group.most} by load" if group.is_scaled else ""
    _tell_placed(name, f"{name}: {group.replicas} replicas{bounds}", as_json=as_json)


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


@app.command()
def remove(
    name: Name,
    worker: Process = None,
    as_json: AsJson = False,
    reason: Reason = "",
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Take a model out of the arena; it finishes its answers first. A restart does not serve it either."""
    placed = PlacedModels(data_dir)
    if url is None and worker is None and placed.has(name):
        placed.remove(name)
        _tell_placed(name, f"{name} finishes its answers, and its processes end then", as_json=as_json)
        return
    served = _act(AdminActOnModel(name=name, action="remove", worker=worker, reason=reason), url, data_dir)
    _tell(f"{name} finishes its answers and is gone then", served, as_json=as_json)


def _action_command(action: Literal["sleep", "wake"], purpose: str, done: str) -> None:
    """Add the command of an action that needs no more than the model's name. purpose: its help."""

    @app.command(action, help=purpose)
    def act(
        name: Name,
        worker: Process = None,
        as_json: AsJson = False,
        reason: Reason = "",
        url: Url = None,
        data_dir: DataDirFlag = None,
    ) -> None:
        served = _act(AdminActOnModel(name=name, action=action, worker=worker, reason=reason), url, data_dir)
        _tell(f"{name} {done}", served, as_json=as_json)


_action_command(
    "sleep", "Give back a model's memory. It stays in the arena: the next battle, chat or request wakes it.", "sleeps"
)
_action_command("wake", "Bring a model into memory now.", "is in memory")


@app.command()
def move(
    name: Name,
    to: Annotated[str, typer.Option("--to", metavar="WORKER", help="A worker process: its URL, or an id in it.")],
    worker: Process = None,
    as_json: AsJson = False,
    reason: Reason = "",
    url: Url = None,
    data_dir: DataDirFlag = None,
) -> None:
    """Load a model in another worker process, then remove it where it was."""
    served = _act(AdminActOnModel(name=name, action="move", worker=worker, to=to, reason=reason), url, data_dir)
    _tell(f"{name} is served by {to}", served, as_json=as_json)


def _tell(done: str, served: AdminServed, *, as_json: bool) -> None:
    """What an action has done, or with --json what is served after it, as `list --json` prints it."""
    print(served.model_dump_json(indent=2) if as_json else done)


def _tell_placed(name: str, done: str, *, as_json: bool) -> None:
    """The same of a model in processes of its own, whose state `agon cluster status --json` prints."""
    print(json.dumps({"model": name, "placed": done}) if as_json else done)


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
        for row in _rows(client, name):
            if row.residence in states:
                return row
        time.sleep(_POLL_S)


def _rows(client: httpx.Client, name: str) -> list[ServedModel]:
    return [row for process in _read(client).processes for row in process.models if row.name == name]


def _note(rows: Sequence[ServedModel]) -> str:
    """What is to be said of a model that has no chat template."""
    forms = [CHAT_FORMS[row.chat] for row in rows if row.chat in CHAT_FORMS]
    return f"; it is {forms[0]}" if forms else ""


def _row(process: WorkerModels, model: ServedModel) -> tuple[str, ...]:
    state = _STATES.get(model.residence, model.residence)
    memory = _size(model.memory_bytes) if model.memory_bytes else f"({_size(model.wanted_bytes)})"
    if is_hosted(model.source):
        state, memory = "hosted", ""
    load = f"{model.running} running, {model.waiting} waiting" if model.running or model.waiting else ""
    woke = "" if model.wake_s is None else f"{model.wake_s:.2f} s"
    trouble = model.error or model.problem
    if trouble is not None:
        state = f"{state}: {trouble}"
    elif note := CHAT_FORMS.get(model.chat):
        state = f"{state}; {note}"
    where = process.worker_ids.get(model.name, process.url)
    return (model.name, state, memory, load, f"{model.idle_s:.0f} s ago", woke, where)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"
