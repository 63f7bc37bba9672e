"""`agon join CONTROLLER`: this machine serves models in an arena that runs on another one.

It checks first (join_checks.py), then runs the worker under a supervisor, in the foreground, until Ctrl-C.
"""

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx
import typer

from cli.arena.child import ChildSpec, ProbeResult
from cli.arena.data_dir import DataDir, Running, default_data_dir
from cli.arena.placement.on_ray.cluster import Machine, check_labels, machine_name
from cli.arena.processes import DRAIN_S, parse_model
from cli.arena.service import base_url, http_probe, service_command, service_environment
from cli.arena.status import StatusView, choose_view
from cli.arena.supervisor import Supervisor
from cli.cluster_node import join_cluster
from cli.errors import CliError
from cli.join_checks import check_join, own_address
from cli.time_slices import ask_for_short_slices
from model_worker.config import WorkerSettings
from model_worker.errors import BadSettings
from model_worker.main import read_settings
from wire.probes import WorkerReady

app = typer.Typer(add_completion=False)

_LOOK_S = 1.0
_STOP_S = DRAIN_S + 5.0
_FINAL_EXIT_CODES = frozenset({2, 3})  #: settings or checkpoint: another start would fail in the same way


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def join(
    context: typer.Context,
    controller: Annotated[
        str,
        typer.Argument(
            metavar="CONTROLLER",
            help="URL of the arena's controller, as http://10.0.0.1:8100; without models: the host of the head of a "
            "Ray cluster, as 10.0.0.1.",
        ),
    ],
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the worker token of the arena. Default: AGON_WORKER_TOKEN(_FILE)."),
    ] = None,
    model: Annotated[
        list[str],
        typer.Option("--model", metavar="NAME=SOURCE", help="A model that this machine serves; may be repeated."),
    ] = [],  # noqa: B006 - typer's way to say "no value"
    label: Annotated[
        list[str], typer.Option("--label", help="Without models: a label of this machine, NAME or NAME=VALUE.")
    ] = [],  # noqa: B006
    host: Annotated[
        str | None,
        typer.Option(help="Address of this machine to listen on. Default: the one that the controller sees."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8200,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of logs and of added models. Default: AGON_DATA_DIR, or ./.agon")
    ] = None,
    only_check: Annotated[bool, typer.Option("--check", help="Check, say what was found, and start nothing.")] = False,
) -> None:
    """Serve models of this machine in an arena on another one; without models, offer this machine to its Ray cluster,
    as `agon cluster join` does.

    Every other flag goes to the worker unchanged: `agon worker --help` lists them. With --rank N every machine of the
    model runs this command; when a rank dies, all are started again.
    """
    controller = controller.rstrip("/")
    if not model:
        return _join_cluster(controller, label, context.args, token_file, host, data_dir)
    if label:
        raise CliError("--label is for machines of a Ray cluster, which have no --model.")
    flags = [part for text in model for part in ("--model", _with_absolute_path(text))]
    flags += ["--host", host or own_address(controller), "--port", str(port), "--controller", controller]
    flags += [] if token_file is None else ["--worker-token-file", str(token_file.expanduser().absolute())]
    folder = DataDir(data_dir or default_data_dir())
    flags += ["--models-file", str(folder.models_file()), *context.args]
    try:
        settings = read_settings(flags)
    except BadSettings as error:
        raise CliError(f"{error}.") from None
    version = asyncio.run(check_join(settings, controller))
    url = settings.advertised_url(port)
    print(f"checked: the controller at {controller} (Agon {version}) takes this machine and reaches it at {url}")
    if only_check:
        return
    ask_for_short_slices()
    folder.create()
    folder.lock(Running(os.getpid(), url, controller))
    try:
        raise SystemExit(asyncio.run(_serve(settings, flags, folder, choose_view())))
    finally:
        folder.unlock()


def _join_cluster(
    head: str, labels: list[str], others: list[str], token_file: Path | None, host: str | None, data_dir: Path | None
) -> None:
    """Without a model. Raises CliError where a model is missing, rather than a cluster meant."""
    if "://" in head:
        raise CliError(_WITHOUT_MODEL)
    if others:
        raise CliError(f"{others[0]} is a flag of workers, and there is no --model; see `agon cluster join --help`.")
    machine = Machine(machine_name(), None, None, check_labels(labels))
    join_cluster(head, machine, token_file=token_file, host=host, data_dir=data_dir)


_WITHOUT_MODEL = (
    "which model does this machine serve? Give --model NAME=PATH, a folder, a GGUF file or a hub id. To offer the "
    "machine to a Ray cluster give its head's host without http://."
)


def _with_absolute_path(text: str) -> str:
    source = parse_model(text)
    return f"{source.name}={source.source}"


async def _serve(settings: WorkerSettings, flags: list[str], folder: DataDir, view: StatusView) -> int:
    """Keep the worker alive until a signal; returns the exit code."""
    stopping, killing = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (killing if stopping.is_set() else stopping).set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    ready_url = f"{base_url(settings.host, settings.port, settings.scheme)}/ready"
    # Its own worker, at an address of this machine that need not be in the certificate; nothing secret is asked.
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        worker = worker_spec(settings, flags, folder, client, ready_url)
        supervisor = Supervisor(
            [[], [worker]], view.event
        )  # not in the first group, which is given up after some deaths
        view.event("join", f"logs in {folder.logs}")
        starting = asyncio.create_task(supervisor.start())
        try:
            while not stopping.is_set() and not supervisor.everything_failed:
                view.refresh(supervisor.children, {}, await headline(client, ready_url, settings))
                await _wait(stopping)
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await _stop(supervisor, killing)
            view.event("join", "stopped; nothing is left running.")
            view.close()
    return 0 if stopping.is_set() else 1


def worker_spec(
    settings: WorkerSettings, flags: list[str], folder: DataDir, client: httpx.AsyncClient, ready_url: str
) -> ChildSpec:
    """The worker process with these settings, which `flags` say."""
    return ChildSpec(
        name="worker",
        command=service_command("model_worker", *flags),
        environment={**service_environment(has_keys=True), "AGON_WORKER_TOKEN": settings.token_text},
        log_path=folder.logs / "worker.log",
        probe=_computes if settings.rank else http_probe(client, ready_url),
        stop_timeout_s=_STOP_S,
        final_exit_codes=_FINAL_EXIT_CODES,
    )


async def _computes() -> ProbeResult:
    """The probe of rank 1 and above, which has no port: it is ready while it runs. It ends with any other rank,
    and so all are started again, each by the `agon join` of its machine."""
    return ProbeResult.READY


async def headline(client: httpx.AsyncClient, ready_url: str, settings: WorkerSettings) -> str:
    """What the process does now, in a sentence."""
    models = ", ".join(settings.model_names)
    if settings.rank:
        size = settings.engine_config.tensor_parallel
        return f"{models}: rank {settings.rank} of {size}, with rank 0 at {settings.master}"
    try:
        answer = await client.get(ready_url, timeout=2.0)
        ready = WorkerReady.model_validate_json(answer.content)
    except (httpx.HTTPError, ValueError):
        return f"starting {models}"
    if answer.status_code == 200:
        return f"{models}: served in the arena of {urlsplit(settings.controller_urls[0]).netloc}"
    return f"{models}: {ready.reason or ready.state}"


async def _wait(stopping: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(_LOOK_S):
            await stopping.wait()
    except TimeoutError:
        pass


async def _stop(supervisor: Supervisor, killing: asyncio.Event) -> None:
    """Stop in order: answers that have begun are finished. A second signal kills."""
    in_order = asyncio.create_task(supervisor.stop())
    at_once = asyncio.create_task(killing.wait())
    await asyncio.wait((in_order, at_once), return_when=asyncio.FIRST_COMPLETED)
    at_once.cancel()
    if not in_order.done():
        in_order.cancel()
        await supervisor.kill()
    await asyncio.gather(in_order, at_once, return_exceptions=True)
