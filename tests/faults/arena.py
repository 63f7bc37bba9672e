"""The arena under test: store, controllers, replicas of each model on the echo engine, web UIs, and fault proxies
between them where a scenario asks for them.

One event loop, that of the harness; every process is a child of a fork server and dies with it.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import httpx

from cli.arena.child import ChildSpec
from cli.arena.data_dir import DataDir, Secrets
from cli.arena.embedded_redis import EmbeddedRedis, find_binary
from cli.arena.mend import mend
from cli.arena.processes import ArenaSettings, ModelSource, build_stages
from tests.faults.clocks import VARIABLE as CLOCK
from tests.faults.clocks import clock_file, set_clock
from tests.faults.proxy import FaultProxy
from tests.faults.services import ForkServer, ForkServers, Service
from wire.workers import PoolView

#: No limit of a visitor's address may hide what a fault does.
_ENVIRONMENT = {
    "AGON_LOCAL_RATE_PER_MINUTE": "6000000",
    "AGON_LOCAL_RATE_BURST": "100000",
    "AGON_RATE_PER_MINUTE": "6000000",
    "AGON_RATE_BURST": "100000",
    "AGON_BATTLE_RATE_PER_MINUTE": "6000000",
    "AGON_BATTLE_RATE_BURST": "100000",
    "AGON_VOTE_RATE_PER_MINUTE": "6000000",
    "AGON_VOTE_RATE_BURST": "100000",
    "AGON_MIN_READ_S": "0",
    "AGON_PACED": "0",  # the figures are of text as it comes
    "AGON_JUDGE_EVERY_S": "0",
    "AGON_WEBUI_UNDO_S": "0",
}
Probe = Callable[[], Awaitable[bool]]
_PORTS_EACH = 60  #: ports of one arena, proxies included


@dataclass(frozen=True)
class Plan:
    """The shape of an arena. `proxied`: the links that go through a fault proxy, of store, workers, controllers."""

    models: tuple[str, ...] = ("ash", "elm")
    replicas: int = 2
    controllers: int = 2
    webuis: int = 0
    tokens_per_s: float = 400.0
    proxied: frozenset[str] = frozenset()
    environment: tuple[tuple[str, str], ...] = ()
    preload: str | None = None  #: the clock shim, for store and controllers
    clocks: Path | None = None  #: folder of the files that shift their clocks


@dataclass
class Arena:
    """The processes by role. Made by `running_arena`."""

    folder: Path
    plan: Plan
    secrets: Secrets
    embedded: EmbeddedRedis
    http: aiohttp.ClientSession
    store: Service
    controllers: list[Service]
    workers: list[Service]
    webuis: list[Service]
    controller_urls: list[str]
    worker_urls: list[str]
    webui_urls: list[str]
    proxies: dict[str, list[FaultProxy]] = field(default_factory=dict)
    mends: list[str] = field(default_factory=list)  #: what was reported when the store's files were mended

    @property
    def services(self) -> list[Service]:
        """All processes, in starting order."""
        return [self.store, *self.controllers, *self.workers, *self.webuis]

    def replicas(self, model: str) -> list[Service]:
        """The workers of one model."""
        return [worker for worker in self.workers if worker.name.startswith(f"worker-{model}-")]

    @property
    def admin_headers(self) -> dict[str, str]:
        """Credentials of the operator."""
        return {"Authorization": f"Bearer {self.secrets.admin_token}"}

    def dead(self) -> list[Service]:
        """Processes that should run and do not."""
        return [service for service in self.services if service.should_run and not service.is_alive]

    async def start(self) -> None:
        """Start everything that does not run, and wait until it is ready and every replica is known."""
        for service in self.services:
            if not service.is_alive:
                service.start()
                if service is self.store:
                    await service.wait_ready()
        for service in self.services:
            await service.wait_ready()
        await self.wait_workers()

    async def wait_workers(self, timeout_s: float = 60.0) -> None:
        """Wait until every controller has heard every worker since the worker's last start, and has it as ready."""
        deadline = time.monotonic() + timeout_s
        for url in self.controller_urls:
            while not await self._knows_all_workers(url):
                assert time.monotonic() < deadline, "workers are missing:\n" + self.report()
                await asyncio.sleep(0.03)

    async def _knows_all_workers(self, controller_url: str) -> bool:
        """A registration lasts some seconds longer than its worker, so only a heartbeat after the start counts."""
        last_start = max(worker.started_at for worker in self.workers)
        asked_at = time.monotonic()
        rows = json.loads(await self.get_text(f"{controller_url}/arena/workers") or "[]")
        ready = [row for row in rows if row["state"] == "ready"]
        return len(ready) == len(self.workers) and all(
            asked_at - row["last_heartbeat_age_s"] > last_start for row in ready
        )

    async def wait_workers_again(self) -> None:
        """As `wait_workers`, after a fault that no worker has noticed by its end: a heartbeat after now counts."""
        for worker in self.workers:
            worker.started_at = time.monotonic()
        await self.wait_workers()

    async def get_text(self, url: str, headers: dict[str, str] | None = None) -> str:
        """The body of a GET; empty while the service does not answer."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with self.http.get(
                url, headers=headers or self.admin_headers, timeout=aiohttp.ClientTimeout(total=10)
            ) as answer:
                return await answer.text()
        return ""

    async def open_turns(self) -> int:
        """Turns that run in any controller."""
        total = 0
        for url in self.controller_urls:
            text = await self.get_text(f"{url}/metrics")
            found = [line for line in text.splitlines() if line.startswith("arena_open_turns ")]
            total += round(float(found[0].rpartition(" ")[2])) if found else 1
        return total

    async def used_pages(self) -> int:
        """Pages in use at all workers."""
        headers = {"Authorization": f"Bearer {self.secrets.worker_token}"}
        total = 0
        for url in self.worker_urls:
            view = PoolView.model_validate_json(await self.get_text(f"{url}/internal/pool", headers))
            total += sum(counts.used for counts in view.pages)
        return total

    def report(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {service.name}\n{service.tail(1200)}" for service in self.services)


@contextlib.asynccontextmanager
async def running_arena(
    folder: Path, plan: Plan, first_port: int, rng: random.Random, servers: ForkServers
) -> AsyncIterator[Arena]:
    """A ready arena in a new folder. All its processes are gone when the block is left."""
    connector = aiohttp.TCPConnector(limit=0, force_close=False)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as http:
        arena = _build(folder, plan, first_port, rng, http, servers)
        try:
            for proxy in (proxy for group in arena.proxies.values() for proxy in group):
                await proxy.start()
            await arena.start()
            yield arena
        finally:
            for service in reversed(arena.services):
                if service.is_alive:
                    await service.kill()
            for proxy in (proxy for group in arena.proxies.values() for proxy in group):
                await proxy.stop()


def free_port_range() -> int:
    """The first of a run of free ports, below the range that the kernel gives to clients."""
    for _ in range(200):
        first = random.randrange(12_000, 30_000)
        if all(_is_free(port) for port in range(first, first + _PORTS_EACH)):
            return first
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _build(
    folder: Path,
    plan: Plan,
    first_port: int,
    rng: random.Random,
    http: aiohttp.ClientSession,
    servers: ForkServers,
) -> Arena:
    for old in (folder / "data").glob("*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    data_dir = DataDir(folder / "data")
    data_dir.create()
    model_folder = folder / "echo-model"
    model_folder.mkdir(parents=True, exist_ok=True)
    (model_folder / "config.json").write_text(json.dumps({"model_type": "echo"}))
    ports = iter(range(first_port, first_port + _PORTS_EACH))
    controllers = [next(ports) for _ in range(plan.controllers)]
    workers = {(model, number): next(ports) for number in range(plan.replicas) for model in plan.models}
    webuis = [next(ports) for _ in range(plan.webuis)]
    secrets = data_dir.secrets()
    binary = find_binary()
    mends: list[str] = []
    embedded = EmbeddedRedis(data_dir.store, binary, lambda: mend(data_dir, binary, mends.append))
    proxies: dict[str, list[FaultProxy]] = {}

    def through(link: str, target: int | str) -> int | str:
        """`target`, or the port of a proxy in front of it where the plan wants one."""
        if link not in plan.proxied:
            return target
        proxy = FaultProxy(next(ports), target, rng)
        proxies.setdefault(link, []).append(proxy)
        return proxy.port

    base = {name: value for name, value in os.environ.items() if not name.startswith(("AGON_", "REDIS_"))}
    extra = {**_ENVIRONMENT, "AGON_ECHO_TOKENS_PER_S": str(plan.tokens_per_s), **dict(plan.environment)}
    logs = data_dir.logs
    unused = httpx.AsyncClient(verify=False)  # of the supervisor's probes, which do not run here

    def server(package: str, **more: str) -> ForkServer:
        return servers.get(package, {**base, **more})

    def specs(controller: int, worker: int, webui: int) -> list[list[ChildSpec]]:
        """What `agon up` would run with these ports; the worker's are for the first model."""
        settings = ArenaSettings(
            data_dir=data_dir.path,
            models=tuple(ModelSource(model, str(model_folder)) for model in plan.models),
            host="127.0.0.1",
            controller_port=controller,
            webui_port=webui,
            worker_port=worker,
            threads_per_worker=1,
            engine="echo",
            is_isolated=True,
        )
        return build_stages(settings, data_dir, secrets, embedded, unused)

    def service(
        name: str, spec: ChildSpec, fork: ForkServer, probe: Probe, extra_arguments: Sequence[str] = (), **more: str
    ) -> Service:
        is_python = "-m" in spec.command
        start = spec.command.index("-m") + 2 if is_python else 0
        environment = {**base, **spec.environment, **extra, **more}
        arguments = [*spec.command[start:], *extra_arguments]
        return Service(name, fork, arguments, environment, logs / f"{name}.log", probe, spec.before_start)

    def shifted(name: str) -> dict[str, str]:
        """What makes a process read its wall clock through the shim."""
        if plan.preload is None or plan.clocks is None:
            return {}
        set_clock(clock_file(plan.clocks, name), 0)
        return {
            "LD_PRELOAD": plan.preload,
            CLOCK: str(clock_file(plan.clocks, name)),
        }

    fork_store, fork_worker = server("exec"), server("model_worker")
    num_forks = plan.controllers if plan.preload else 1  # a clock belongs to a process and its children
    fork_controllers = [server("controller", **shifted(f"controller-{number}")) for number in range(num_forks)]
    stages = specs(controllers[0], next(iter(workers.values())), first_port + _PORTS_EACH - 1)
    store = service("store", stages[0][0], fork_store, embedded.ping, **shifted("store"))
    controller_services, controller_urls = [], []
    for number, port in enumerate(controllers):
        spec = specs(port, 1, 1)[1][0]
        target = through("store", str(embedded.socket_path))
        url = spec.environment["AGON_REDIS_URL"] if isinstance(target, str) else f"redis://127.0.0.1:{target}/0"
        ready = _http_probe(http, f"http://127.0.0.1:{port}/ready")
        name = f"controller-{number}"
        fork = fork_controllers[number if plan.preload else 0]
        controller_services.append(service(name, spec, fork, ready, AGON_REDIS_URL=url, **shifted(name)))
        controller_urls.append(f"http://127.0.0.1:{port}")
    fronts = [f"http://127.0.0.1:{through('controller', port)}" for port in controllers]
    worker_services, worker_urls = [], []
    for (model, number), port in workers.items():
        spec = specs(controllers[0], port - plan.models.index(model), 1)[2][plan.models.index(model)]
        shown = f"http://127.0.0.1:{through('worker', port)}"
        others = [word for url in controller_urls[1:] for word in ("--controller", url)]
        ready = _http_probe(http, f"http://127.0.0.1:{port}/ready")
        name = f"worker-{model}-{number}"
        worker_services.append(service(name, spec, fork_worker, ready, others, AGON_WORKER_URL=shown))
        worker_urls.append(f"http://127.0.0.1:{port}")
    webui_services, webui_urls = [], []
    for number, port in enumerate(webuis):
        spec = specs(controllers[0], 1, port)[3][0]
        token = spec.environment.get("AGON_PROXY_TOKEN", "")
        fork_webui = server("webui", AGON_CONTROLLER_URL=fronts[number % len(fronts)], AGON_PROXY_TOKEN=token)
        ready = _http_probe(http, f"http://127.0.0.1:{port}/health")
        webui_services.append(service(f"webui-{number}", spec, fork_webui, ready))
        webui_urls.append(f"http://127.0.0.1:{port}")
    return Arena(
        folder=folder,
        plan=plan,
        secrets=secrets,
        embedded=embedded,
        http=http,
        store=store,
        controllers=controller_services,
        workers=worker_services,
        webuis=webui_services,
        controller_urls=controller_urls,
        worker_urls=worker_urls,
        webui_urls=webui_urls,
        proxies=proxies,
        mends=mends,
    )


def _http_probe(http: aiohttp.ClientSession, url: str) -> Probe:
    async def probe() -> bool:
        try:
            async with http.get(url, timeout=aiohttp.ClientTimeout(total=3)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    return probe
