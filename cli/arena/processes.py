"""The processes of a local arena: their commands, environments, ports and probes. Starts none of them."""

import errno
import os
import re
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

import cli
from cli.arena.child import ChildSpec, ProbeResult
from cli.arena.data_dir import DataDir, Secrets
from cli.arena.embedded_redis import EmbeddedRedis
from cli.arena.local_tls import LocalTls
from cli.arena.placement.on_ray.cluster import ClusterSettings
from cli.arena.placement.placement import MAX_REPLICAS, Replica
from cli.arena.placement.worker_process import WorkerOrder, worker_command
from cli.arena.ports import why_taken
from cli.arena.service import STORE_PASSWORDS, base_url, http_probe, service_command, service_environment
from cli.errors import CliError
from engine.config import KVDType
from engine.idle_threads import bounded_spinning
from engine.model_files import gguf_name, is_gguf
from wire.hosted_models import HostedModel, is_hosted
from wire.model_names import is_model_name
from wire.served_models import MAX_MODELS
from wire.sizes import is_size

DRAIN_S = 30.0  #: how long a worker may continue the answers that it has begun
TOOL_DEMOS = frozenset({"wren"})  #: demo models that answer for agents and hardly chat
_STOP_MARGIN_S = 5.0
#: Exit codes of our services that say that another start would fail in the same way.
_BAD_SETTINGS, _BAD_CHECKPOINT = frozenset({2}), frozenset({3})
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")  # with the data type of a GGUF file


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model to serve: its name in the arena, and `source`, a local folder, a GGUF file, a hub id, or a model of
    another server (wire/hosted_models.py)."""

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """One worker process: the name of its child, and its models. `key` names the file of what is added to it; None:
    the process that all models share."""

    name: str
    models: tuple[ModelSource, ...]
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ArenaSettings:
    """The flags of `agon up`."""

    data_dir: Path
    models: tuple[ModelSource, ...]
    host: str
    controller_port: int
    webui_port: int
    worker_port: int
    threads_per_worker: int
    kv_dtype: KVDType | None = None  #: None: the worker's own choice
    is_isolated: bool = False  #: a worker process for each model; else one for all
    models_dir: Path | None = None  #: its models are offered, too, and loaded on first use
    memory: str | None = None  #: most memory of all models, as the worker's --memory
    engine: str | None = None  #: another engine of the worker, for tests
    redis_url: str | None = None  #: an external store; None: the embedded one
    replicas: Mapping[str, int] = field(default_factory=dict)  #: by model: worker processes that serve it
    tls: LocalTls = field(default_factory=LocalTls)
    root_path: str = ""  #: prefix of the web UI's pages
    cluster: ClusterSettings | None = None  #: workers are placed by Ray; None: they are processes of this machine

    @property
    def controller_url(self) -> str:
        """URL under which local clients reach the controller."""
        return base_url(self.tls.name or self.host, self.controller_port, self.tls.scheme)

    @property
    def webui_url(self) -> str:
        """URL under which local browsers reach the web UI."""
        return base_url(self.tls.name or self.host, self.webui_port, self.tls.scheme)

    @property
    def page_url(self) -> str:
        """URL of the page that local browsers open."""
        return f"{self.webui_url}{self.root_path}"

    @property
    def processes(self) -> tuple[WorkerProcess, ...]:
        """The worker processes: one for all models, or one for each, then further replicas of single models.
        None where Ray places them."""
        if self.cluster is not None:
            return ()
        if self.is_isolated:
            first = tuple(WorkerProcess(f"worker {model.name}", (model,), model.name) for model in self.models)
        else:
            first = (WorkerProcess("worker", self.models),)
        more = tuple(
            WorkerProcess(f"worker {model.name} {number}", (model,), f"{model.name} {number}")
            for model in self.models
            for number in range(2, self.replicas.get(model.name, 1) + 1)
        )
        return (*first, *more)

    def worker_url(self, index: int) -> str:
        """URL of the worker process processes[index]; workers listen on loopback only, where they need no TLS."""
        return base_url("127.0.0.1", self.worker_port + index)


def default_threads() -> int:
    """Threads of each worker: half of the cores, because a battle keeps two workers busy."""
    return max(1, (os.cpu_count() or 2) // 2)


def parse_model(text: str) -> ModelSource:
    """A model from `NAME=SOURCE`, `SOURCE` or `NAME=BASE+FOLDER`. Raises CliError with the reason."""
    name, separator, source = ("", "", "") if is_hosted(text) else text.partition("=")
    if not separator:
        name, source = "", text
    if is_hosted(source):
        return _hosted_model(name, source)
    path = Path(source).expanduser()
    base, is_adapter, folder = source.partition("+")
    if is_adapter and not path.exists():
        return _adapter(text, name, base, Path(folder).expanduser())
    own_name = Path(source).name
    if path.is_dir():
        source = str(path.absolute())
        if not (path / "config.json").is_file():
            raise CliError(f"--model {text}: {path} has no config.json, so it is no model in Hugging Face layout.")
    elif is_gguf(path):
        source, own_name = str(path.absolute()), gguf_name(path)
    elif not _HUB_ID.fullmatch(source) or source.startswith(".") or path.suffix == ".gguf":
        kind = "file" if path.suffix == ".gguf" else "folder"
        raise CliError(f"--model {text}: there is no {kind} {source}, and it is no hub id like organisation/model.")
    name = name or own_name
    if not is_model_name(name):
        raise CliError(f"--model {text}: {name!r} is no usable name; ASCII letters, digits and . _ : / - are.")
    return ModelSource(name, source)


def _adapter(text: str, name: str, base: str, folder: Path) -> ModelSource:
    """A LoRA adapter from `NAME=BASE+FOLDER`."""
    if not (folder / "adapter_config.json").is_file():
        raise CliError(f"--model {text}: {folder} has no adapter_config.json, so it is no folder of an adapter.")
    name = name or folder.name
    if not is_model_name(name) or not is_model_name(base):
        raise CliError(
            f"--model {text}: an adapter is NAME=BASE+FOLDER, with the name of a model of the arena as BASE."
        )
    return ModelSource(name, f"{base}+{folder.absolute()}")


def _hosted_model(name: str, source: str) -> ModelSource:
    try:
        hosted = HostedModel.parse(source)
    except ValueError as error:
        raise CliError(f"--model {name or source.partition('#')[0]}: {error}.") from None
    if hosted.key_file is not None:
        hosted = hosted.model_copy(update={"key_file": str(Path(hosted.key_file).expanduser().absolute())})
    name = name or hosted.model
    if not is_model_name(name):
        raise CliError(f"--model {name}: no usable name; ASCII letters, digits and . _ : / - are.")
    return ModelSource(name, str(hosted))


def parse_models(texts: list[str], *, has_demos: bool = True, removed: Collection[str] = ()) -> tuple[ModelSource, ...]:
    """All models of an arena: those that are given, then the demo models of other names that were not `removed`. Raises
    CliError, also for two of the same name."""
    models = tuple(parse_model(text) for text in texts)
    names = [model.name for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CliError(f"two models are named {twice!r}; give one another name with --model NAME=PATH_OR_HUB_ID.")
    demos = demo_models() if has_demos else ()
    return (*models, *(model for model in demos if model.name not in (*names, *removed)))


def parse_replicas(texts: list[str], models: Collection[ModelSource]) -> Mapping[str, int]:
    """Replicas of models, each from `NAME=COUNT`. Raises CliError."""
    replicas: dict[str, int] = {}
    names = [model.name for model in models]
    for text in texts:
        name, _, count = text.rpartition("=")
        if not name or not count.isdecimal() or not 1 <= int(count) <= MAX_REPLICAS:
            raise CliError(f"--replicas {text}: give NAME=COUNT, with a count from 1 to {MAX_REPLICAS}.")
        if name not in names:
            raise CliError(f"--replicas {text}: there is no model {name!r}; there are {', '.join(names) or 'none'}.")
        if any(model.name == name and _is_adapter(model) for model in models):
            raise CliError(f"--replicas {text}: an adapter shares the process of its base; replicate that.")
        replicas[name] = int(count)
    return replicas


def _is_adapter(model: ModelSource) -> bool:
    return "+" in model.source and not is_hosted(model.source) and not Path(model.source).exists()


def demo_models() -> tuple[ModelSource, ...]:
    """The small models that lie beside our packages, in the source tree as in a wheel; none in the container images of
    the services, which have them elsewhere."""
    folder = Path(cli.__file__).parent.parent / "demo_models"
    return tuple(
        ModelSource(path.name, str(path))
        for path in sorted(folder.glob("*"))
        if (path / "config.json").is_file() and any(path.glob("*.safetensors"))
    )


def _undrawn(settings: ArenaSettings) -> dict[str, str]:
    """Which models battles do not draw: the demo model that is for tools, unless the environment says."""
    served = set(settings.models) & {model for model in demo_models() if model.name in TOOL_DEMOS}
    names = os.environ.get("AGON_UNDRAWN_MODELS") or ",".join(model.name for model in served)
    return {"AGON_UNDRAWN_MODELS": names} if names else {}


def check_models(settings: ArenaSettings, kept: Collection[str]) -> None:
    """Raise CliError for flags that do not go together. `kept`: models that were added while the arena ran before."""
    if settings.cluster is not None:
        _check_cluster(settings)
        return
    if not settings.models and settings.models_dir is None and (settings.is_isolated or not kept):
        raise CliError("there is no model: give --model NAME=PATH_OR_HUB_ID, or leave out --no-demos.")
    if settings.is_isolated and any(_is_adapter(model) for model in settings.models):
        raise CliError("an adapter shares the process of its base; leave out --isolate.")
    if settings.is_isolated and (settings.models_dir is not None or settings.memory is not None):
        raise CliError("--models-dir and --memory are for models that share a process; leave out --isolate.")
    if not settings.is_isolated and len(settings.models) > MAX_MODELS:
        raise CliError(f"one worker process serves at most {MAX_MODELS} models; give fewer, or --isolate.")
    if settings.models_dir is not None and not settings.models_dir.is_dir():
        raise CliError(f"--models-dir: there is no folder {settings.models_dir}.")
    if settings.memory is not None and not is_size(settings.memory):
        raise CliError(f"--memory {settings.memory}: give a size such as 40GiB or 512MiB.")


def _check_cluster(settings: ArenaSettings) -> None:
    """Every model has a process of its own there, and an arena may begin without any."""
    if settings.models_dir is not None or settings.memory is not None:
        raise CliError("--models-dir and --memory are for models that share a process; leave out --placement ray.")
    if any(_is_adapter(model) for model in settings.models):
        raise CliError("an adapter shares the process of its base; leave out --placement ray.")


def check_ports(settings: ArenaSettings) -> None:
    """Raise CliError with the first taken port and the flag that changes it; called before any process starts."""
    wanted = [
        (settings.host, settings.controller_port, "--controller-port"),
        (settings.host, settings.webui_port, "--webui-port"),
        *(("127.0.0.1", settings.worker_port + index, "--worker-port") for index in range(len(settings.processes))),
    ]
    if settings.cluster is not None and settings.cluster.head is None:
        wanted.append((settings.host, settings.cluster.port, "--cluster-port"))
    seen: dict[int, str] = {}
    for host, port, flag in wanted:
        if port in seen:
            raise CliError(f"port {port} is wanted twice, by {seen[port]} and {flag}; move one of them.")
        seen[port] = flag
        reason = why_taken(host, port)
        if reason == os.strerror(errno.EADDRNOTAVAIL):
            raise CliError(f"this machine has no address {host}; --host takes one of its own, or 0.0.0.0 for all.")
        if reason is not None:
            raise CliError(f"port {port} on {host} is not free ({reason}); choose another with {flag}.")


def build_stages(
    settings: ArenaSettings, data_dir: DataDir, secrets: Secrets, store: EmbeddedRedis | None, client: httpx.AsyncClient
) -> list[list[ChildSpec]]:
    """The processes in stages, in the order of their start; see Supervisor. store: None for an external Redis. Replicas
    that a placement starts are none of them."""
    controller = _controller(settings, data_dir, secrets, store.url if store else settings.redis_url or "", client)
    workers = [_worker(settings, data_dir, secrets, index, client) for index in range(len(settings.processes))]
    stages = [[controller], workers, [_webui(settings, data_dir, secrets, client)]]
    return [[store_spec(store, data_dir)], *stages] if store is not None else stages


def store_spec(store: EmbeddedRedis, data_dir: DataDir) -> ChildSpec:
    """The process of the embedded store."""

    async def probe() -> ProbeResult:
        return ProbeResult.READY if await store.ping() else ProbeResult.SILENT

    return ChildSpec(
        name="store",
        command=store.command,
        environment={**service_environment(), "LC_ALL": "C"},
        log_path=data_dir.logs / "store.log",
        probe=probe,
        stop_timeout_s=20.0,
        death_signal=signal.SIGTERM,
        lock_path=store.lock_path,
        before_start=store.prepare,
    )


def _controller(
    settings: ArenaSettings, data_dir: DataDir, secrets: Secrets, redis_url: str, client: httpx.AsyncClient
) -> ChildSpec:
    return ChildSpec(
        name="controller",
        command=service_command("controller", "--host", settings.host, "--port", str(settings.controller_port)),
        environment={
            **service_environment(),
            "AGON_REDIS_URL": redis_url,
            **_store_passwords(),
            "AGON_WORKER_TOKEN": secrets.worker_token,
            "AGON_ADMIN_TOKEN": secrets.admin_token,
            "AGON_VOTER_KEY": secrets.voter_key,
            "AGON_PROXY_TOKEN": secrets.proxy_token,
            "AGON_API_DOCS": _api_docs(settings.host),
            "AGON_JOURNAL_DIR": _folder("AGON_JOURNAL_DIR", data_dir.journal(settings.redis_url)),
            "AGON_BOARDS_DIR": _folder("AGON_BOARDS_DIR", data_dir.boards(settings.redis_url)),
            "AGON_PROCESSES_FILE": str(data_dir.processes_file),
            **_undrawn(settings),
        },
        log_path=data_dir.logs / "controller.log",
        probe=http_probe(client, f"{settings.controller_url}/ready"),
        stop_timeout_s=10.0 + _STOP_MARGIN_S,
        final_exit_codes=_BAD_SETTINGS,
    )


def _worker(
    settings: ArenaSettings, data_dir: DataDir, secrets: Secrets, index: int, client: httpx.AsyncClient
) -> ChildSpec:
    process = settings.processes[index]
    flags = [part for model in process.models for part in ("--model", f"{model.name}={model.source}")]
    flags += ["--models-file", str(data_dir.models_file(process.key))]
    if settings.models_dir is not None and process.key is None:
        flags += ["--models-dir", str(settings.models_dir.absolute())]
    if settings.memory is not None and process.key is None:
        flags += ["--memory", settings.memory]
    flags += ["--host", "127.0.0.1", "--port", str(settings.worker_port + index)]
    flags += ["--controller", settings.controller_url, "--threads", str(settings.threads_per_worker)]
    flags += worker_options(settings)
    return _worker_spec(
        process.name,
        service_command("model_worker", *flags),
        settings.worker_port + index,
        settings,
        data_dir,
        secrets,
        client,
    )


def replica_spec(
    settings: ArenaSettings, data_dir: DataDir, secrets: Secrets, replica: Replica, port: int, client: httpx.AsyncClient
) -> ChildSpec:
    """The worker process of a replica that is placed on this machine."""
    order = WorkerOrder(replica=replica, controller_url=settings.controller_url, options=worker_options(settings))
    command = worker_command(order, host="127.0.0.1", port=port, is_gpu_chosen=False)
    return _worker_spec(f"worker {replica.id}", command, port, settings, data_dir, secrets, client)


def _worker_spec(
    name: str,
    command: tuple[str, ...],
    port: int,
    settings: ArenaSettings,
    data_dir: DataDir,
    secrets: Secrets,
    client: httpx.AsyncClient,
) -> ChildSpec:
    """A worker process that listens on loopback, where it needs no TLS."""
    return ChildSpec(
        name=name,
        command=command,
        environment={
            **_spin_limit(settings),
            **service_environment(has_keys=True, speaks_tls=False),
            "AGON_WORKER_TOKEN": secrets.worker_token,
            "AGON_API_DOCS": _api_docs(settings.host),
        },
        log_path=data_dir.logs / f"{re.sub(r'[^A-Za-z0-9._-]', '-', name)}.log",
        probe=http_probe(client, f"{base_url('127.0.0.1', port)}/ready"),
        stop_timeout_s=DRAIN_S + _STOP_MARGIN_S,
        final_exit_codes=_BAD_SETTINGS | _BAD_CHECKPOINT,
    )


def worker_options(settings: ArenaSettings) -> tuple[str, ...]:
    """Flags of every worker that follow from those of `agon up`."""
    flags: tuple[str, ...] = ()
    if settings.kv_dtype is not None:
        flags += ("--kv-dtype", settings.kv_dtype)
    if settings.engine is not None:
        flags += ("--engine", settings.engine)
    return flags


def _webui(settings: ArenaSettings, data_dir: DataDir, secrets: Secrets, client: httpx.AsyncClient) -> ChildSpec:
    flags = ["--host", settings.host, "--port", str(settings.webui_port), "--controller", settings.controller_url]
    return ChildSpec(
        name="webui",
        command=service_command("webui", *flags),
        environment={**service_environment(), "AGON_PROXY_TOKEN": secrets.proxy_token},
        log_path=data_dir.logs / "webui.log",
        probe=http_probe(client, f"{settings.webui_url}/health"),
        stop_timeout_s=_STOP_MARGIN_S,
        final_exit_codes=_BAD_SETTINGS,
    )


def _spin_limit(settings: ArenaSettings) -> Mapping[str, str]:
    """The spin limit of idle threads of a model, if the threads of all models together leave no core free."""
    num_models = sum(len(process.models) for process in settings.processes)
    num_threads = num_models * settings.threads_per_worker
    return bounded_spinning(num_threads, os.cpu_count() or 1)


def _api_docs(host: str) -> str:
    """Whether controller and workers serve /openapi.json and /docs: on an arena that only this machine reaches, unless
    the environment says otherwise."""
    return os.environ.get("AGON_API_DOCS") or str(host in ("127.0.0.1", "::1", "localhost")).lower()


def _folder(variable: str, path: Path) -> str:
    """A folder of the controller; an empty variable of the environment turns off what is kept there."""
    return "" if os.environ.get(variable) == "" else str(path)


def _store_passwords() -> Mapping[str, str]:
    names = (f"{name}{end}" for name in STORE_PASSWORDS for end in ("", "_FILE"))
    return {name: os.environ[name] for name in names if name in os.environ}
