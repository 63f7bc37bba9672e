"""`agon up`: the whole arena on this machine, in the foreground, until Ctrl-C."""

import asyncio
import contextlib
import os
import signal
import time
import webbrowser
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import httpx
import typer
from pydantic import TypeAdapter, ValidationError

from cli.arena.child import ChildState
from cli.arena.data_dir import DataDir, Running, default_data_dir
from cli.arena.embedded_redis import EmbeddedRedis, find_binary
from cli.arena.kept_models import read_kept
from cli.arena.local_tls import read_local_tls
from cli.arena.mend import mend
from cli.arena.placement.assembly import build_arena
from cli.arena.placement.control import answering
from cli.arena.placement.fleet import Fleet, first_sentence
from cli.arena.placement.on_ray.cluster import (
    DEFAULT_PORT,
    ClusterSettings,
    Machine,
    check_labels,
    machine_name,
    require_ray,
    split_address,
)
from cli.arena.placement.placement import Placement, ReplicaView
from cli.arena.placement.scaler import Scaler
from cli.arena.processes import (
    ArenaSettings,
    check_models,
    check_ports,
    default_threads,
    parse_models,
    parse_replicas,
)
from cli.arena.state_file import StateFile
from cli.arena.status import CHAT_FORMS, StatusView, choose_view
from cli.arena.supervisor import Supervisor
from cli.engine_options import engine_option
from cli.errors import CliError
from cli.external_store import external_store
from engine.config import KVDType
from service_kit.path_prefix import RootPath
from service_kit.trust import trust
from wire.served_models import ServedModels
from wire.workers import WorkerView

app = typer.Typer(add_completion=False)

_REFRESH_S = 1.0
_REFRESH_STARTING_S = 0.2
_HINT_AFTER_S = 30.0  #: seconds; most starts take less
_STOPPING = "stopping: answers that have begun are finished first; Ctrl-C again kills"


@app.command()
def up(
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            metavar="NAME=SOURCE",
            help="A model beside the demo models: a folder, GGUF file, hub id or openai:MODEL@URL; may be repeated.",
        ),
    ] = [],  # noqa: B006 - typer's way to say "no value"
    demos: Annotated[bool, typer.Option("--demos/--no-demos", help="Whether the demo models are served.")] = True,
    models_dir: Annotated[
        Path | None,
        typer.Option(help="A folder: each model folder and GGUF file in it is offered, and loaded on first use."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Most memory of all models, as 40GiB; the least recently used ones sleep.",
        ),
    ] = None,
    isolate: Annotated[
        bool,
        typer.Option("--isolate", help="A worker process for each model: more memory, and none dies with another."),
    ] = False,
    replicas: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=COUNT",
            help="Worker processes that serve a model, each with a page pool of its own; may be repeated.",
        ),
    ] = [],  # noqa: B006 - typer's way to say "no value"
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of votes, secrets and logs. Default: AGON_DATA_DIR, or ./.agon")
    ] = None,
    host: Annotated[str, typer.Option(help="Address of the web UI and the controller.")] = "127.0.0.1",
    controller_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the controller.")] = 8100,
    webui_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web UI.")] = 7860,
    worker_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the worker; with --isolate of the first one.")
    ] = 8200,
    threads_per_worker: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads of each model. Default: half of the cores (a battle keeps two busy)."),
    ] = None,
    kv_dtype: Annotated[
        KVDType | None, engine_option("kv_dtype", note="For all models. Default: AGON_KV_DTYPE, or auto")
    ] = None,
    placement: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Where workers run: as processes of this machine, or on the machines of a Ray cluster."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Head of a Ray cluster that exists. Default: a head of the arena's."),
    ] = None,
    cluster_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the head that `agon cluster join` connects to.")
    ] = DEFAULT_PORT,
    cluster_cpus: Annotated[
        int | None, typer.Option(min=0, help="Cores of this machine for workers of the cluster. Default: all.")
    ] = None,
    cluster_gpus: Annotated[
        int | None, typer.Option(min=0, help="GPUs of this machine for workers of the cluster. Default: all.")
    ] = None,
    label: Annotated[
        list[str], typer.Option("--label", help="Label of this machine in the cluster, NAME or NAME=VALUE.")
    ] = [],  # noqa: B006 - typer's way to say "no value"
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the web UI when it is ready.")] = False,
    engine: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Start the whole arena on this machine: store, controller, a worker with all models, web UI."""
    cluster = None
    if placement == "ray":
        require_ray("--placement ray")
        machine = Machine(machine_name(), cluster_cpus, cluster_gpus, check_labels(label))
        cluster = ClusterSettings(machine, cluster_port, None if address is None else split_address(address))
    external = external_store()
    folder = DataDir(data_dir or default_data_dir())
    kept = read_kept(folder.models_file())
    models = parse_models(model, has_demos=demos, removed=() if isolate else kept.removed)
    settings = ArenaSettings(
        data_dir=folder.path,
        models=models,
        replicas=parse_replicas(replicas, models),
        tls=read_local_tls(host),
        root_path=_root_path(),
        host=host,
        controller_port=controller_port,
        webui_port=webui_port,
        worker_port=worker_port,
        threads_per_worker=threads_per_worker or default_threads(),
        kv_dtype=kv_dtype,
        is_isolated=isolate,
        models_dir=None if models_dir is None else models_dir.expanduser(),
        memory=memory,
        engine=engine,
        redis_url=None if external is None else external.redis_url,
        cluster=cluster,
    )
    check_models(settings, [model.name for model in kept.added])
    folder.create()
    folder.lock(Running(os.getpid(), settings.page_url, settings.controller_url))
    try:
        check_ports(settings)
        view = choose_view()
        store = _embedded_store(folder, view) if settings.redis_url is None else None
        code = asyncio.run(Arena(settings, folder, store, view, open_browser=open_browser).run())
    finally:
        folder.unlock()
    raise SystemExit(code)


def _root_path() -> str:
    """AGON_WEBUI_ROOT_PATH. Raises CliError, rather than let the web UI end."""
    try:
        return TypeAdapter(RootPath).validate_python(os.environ.get("AGON_WEBUI_ROOT_PATH", ""))
    except ValidationError as error:
        raise CliError(f"AGON_WEBUI_ROOT_PATH: {first_sentence(error)}") from None


def _embedded_store(folder: DataDir, view: StatusView) -> EmbeddedRedis:
    binary = find_binary()
    return EmbeddedRedis(folder.store, binary, lambda: mend(folder, binary, partial(view.event, "store")))


class Arena:
    """One run of the arena: connects the supervisor, the terminal and the signals."""

    def __init__(
        self,
        settings: ArenaSettings,
        folder: DataDir,
        store: EmbeddedRedis | None,
        view: StatusView,
        open_browser: bool,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._store = store
        self._view = view
        self._open_browser = open_browser
        self._stop_requested = asyncio.Event()
        self._kill_requested = asyncio.Event()
        self._is_ready = False
        self._ready_once = False
        self._has_hinted = False
        self._placement: Placement | None = None
        self._replicas: dict[str, tuple[str, str, int]] = {}  #: on other machines, as they were reported
        self._failed: dict[str, str] = {}  #: models that cannot be loaded, with the reason
        self._base_models: set[str] = set()  #: reported ones
        self._was_served: set[str] = set()  #: models that the controller has known; one that was removed is among them
        self._worker_headers: dict[str, str] = {}
        self._admin_headers: dict[str, str] = {}  #: GET /arena/workers shows loads to the admin only
        self._started_at = time.monotonic()

    async def run(self) -> int:
        """Run until a signal or until every process has failed; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        # All requests stay on this machine, so proxies from the environment would be wrong.
        async with httpx.AsyncClient(trust_env=False, verify=trust(self._settings.tls.ca_file)) as client:
            secrets = self._folder.secrets()
            self._folder.write_worker_token(secrets)
            self._admin_headers = {"Authorization": f"Bearer {secrets.admin_token}"}
            self._worker_headers = {"Authorization": f"Bearer {secrets.worker_token}"}
            states = StateFile(self._folder.processes_file)
            supervisor, placement, fleet = build_arena(
                self._settings, self._folder, secrets, self._store, client, self._view.event, states.write
            )
            self._placement = placement
            scaler = Scaler(fleet, client, self._settings.controller_url, self._admin_headers, self._view.event)
            self._view.event("arena", f"data in {self._folder.path}, logs in {self._folder.logs}")
            scaling = asyncio.create_task(scaler.run())
            try:
                async with answering(self._folder.path, fleet):
                    code = await self._serve(supervisor, fleet, client)
            finally:
                scaling.cancel()
                await self._stop(supervisor)
                states.remove()
                self._view.close()
            return code

    def _on_signal(self) -> None:
        if self._stop_requested.is_set():
            self._kill_requested.set()
        self._stop_requested.set()

    async def _serve(self, supervisor: Supervisor, fleet: Fleet, client: httpx.AsyncClient) -> int:
        async def start() -> None:
            await supervisor.start()
            fleet.start()

        starting = asyncio.create_task(start())
        try:
            while not self._stop_requested.is_set():
                if starting.done() and starting.exception() is not None:
                    return 1  # the reason has been reported
                if supervisor.everything_failed:
                    self._view.event("arena", "every process has failed.")
                    return 1
                await self._refresh(supervisor, client)
                await _wait(self._stop_requested, _REFRESH_S if self._is_ready else _REFRESH_STARTING_S)
            return 0
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    async def _refresh(self, supervisor: Supervisor, client: httpx.AsyncClient) -> None:
        workers = await self._workers(client)
        if not self._is_ready:
            await self._note_failed(client)
        self._note_base_models(workers)
        waiting = self._waiting_for(supervisor, workers)
        self._is_ready = not waiting
        if waiting:
            headline = f"waiting for {', '.join(waiting)}"
        else:
            headline = f"The arena is ready: {self._settings.page_url}  (API: {self._settings.controller_url}/v1)"
        failed = [child.spec.name for child in supervisor.children if child.state is ChildState.GIVEN_UP]
        failed += sorted(self._failed)
        if failed:
            headline += f"  [failed: {', '.join(failed)}]"
        self._view.refresh(supervisor.children, workers, headline)
        if not (self._ready_once or self._has_hinted) and time.monotonic() - self._started_at > _HINT_AFTER_S:
            self._has_hinted = True
            store = "" if self._store else " The store is the one of REDIS_URL: does it answer?"
            self._view.event("arena", f"still {headline}; see {self._folder.logs}.{store}")
        if self._is_ready and not self._ready_once:
            self._ready_once = True
            self._view.event("arena", f"ready after {time.monotonic() - self._started_at:.1f} s")
            if workers and sum(worker.card.can_chat for worker in workers.values()) < 2:
                self._view.event("arena", "fewer than two models can chat: there are no battles")
            if self._open_browser:
                webbrowser.open(self._settings.page_url)

    def _waiting_for(self, supervisor: Supervisor, workers: dict[str, WorkerView]) -> list[str]:
        """Names of processes that are not ready, and of models that the controller does not know yet, although their
        worker is ready."""
        waiting = []
        self._was_served |= workers.keys()
        models = {process.name: process.models for process in self._settings.processes}
        for child in supervisor.children:
            if child.state is ChildState.GIVEN_UP:
                continue
            if child.state is not ChildState.READY:
                waiting.append(child.spec.name)
                continue
            wanted = {model.name for model in models.get(child.spec.name, ())}
            waiting += sorted(f"worker {name}" for name in wanted - self._was_served - self._failed.keys())
        for replica in self._note_replicas():
            if replica.state not in ("ready", "failed") and f"worker {replica.id}" not in waiting:
                waiting.append(f"worker {replica.id}")
        return waiting

    def _note_replicas(self) -> Sequence[ReplicaView]:
        """The replicas; what has become of those on other machines is reported, as the supervisor does of its own."""
        assert self._placement is not None
        replicas = self._placement.view().replicas
        if self._placement.has_machines:
            for replica in replicas:
                now = (replica.state, replica.machine, replica.restarts)
                if self._replicas.get(replica.id) != now and replica.state in ("ready", "restarting", "failed"):
                    where = f" on {replica.machine}" if replica.machine else ""
                    why = f": {replica.problem}" if replica.problem and replica.state != "ready" else ""
                    self._view.event(f"worker {replica.id}", f"{replica.state}{where}{why}")
                self._replicas[replica.id] = now
        return replicas

    def _note_base_models(self, workers: Mapping[str, WorkerView]) -> None:
        """Report the models without a chat template, each once."""
        for model, worker in workers.items():
            if worker.card.chat in CHAT_FORMS and model not in self._base_models:
                self._base_models.add(model)
                self._view.event(model, f"is {CHAT_FORMS[worker.card.chat]}")

    async def _note_failed(self, client: httpx.AsyncClient) -> None:
        """Report the models that their worker cannot load, each once."""
        if self._settings.is_isolated or not self._settings.processes:
            return  # such a worker ends, which its child reports
        try:
            url = f"{self._settings.worker_url(0)}/internal/models"
            answer = await client.get(url, headers=self._worker_headers, timeout=2.0)
            rows = ServedModels.model_validate(answer.raise_for_status().json()).models
        except (httpx.HTTPError, ValueError, TypeError):
            return
        failed = {row.name: row.error for row in rows if row.error is not None}
        for name, error in failed.items():
            if name not in self._failed:
                self._view.event(name, f"is not served: {error}")
        self._failed = failed

    async def _workers(self, client: httpx.AsyncClient) -> dict[str, WorkerView]:
        """The workers that the controller knows, by model; empty while it does not answer."""
        try:
            url = f"{self._settings.controller_url}/arena/workers"
            answer = await client.get(url, headers=self._admin_headers, timeout=2.0)
            answer.raise_for_status()
            views = [WorkerView.model_validate(row) for row in answer.json()]
        except (httpx.HTTPError, ValueError, TypeError):
            return {}
        return {view.model: view for view in views}

    async def _stop(self, supervisor: Supervisor) -> None:
        async def stop() -> None:
            if self._placement is not None:
                await self._placement.end()
            await supervisor.stop()

        stopping = asyncio.create_task(stop())
        killing = asyncio.create_task(self._kill_requested.wait())
        while not (stopping.done() or killing.done()):
            self._view.refresh(supervisor.children, {}, _STOPPING)
            await asyncio.wait((stopping, killing), timeout=_REFRESH_S, return_when=asyncio.FIRST_COMPLETED)
        killing.cancel()
        if not stopping.done():
            stopping.cancel()
            await supervisor.kill()
        await asyncio.gather(stopping, killing, return_exceptions=True)
        self._view.event("arena", "stopped; nothing is left running.")


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
