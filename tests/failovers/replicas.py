"""A primary, its replicas and three sentinels as processes that a test kills, stops and starts again."""

import contextlib
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from cli.arena.embedded_redis import find_binary
from tests.e2e.arena import free_ports

SERVICE = "votes"
PASSWORD = "store-password-for-tests"
SENTINEL_PASSWORD = "sentinel-password-for-tests"
#: Sentinel takes a server for dead after so long without an answer. In production: a second or more.
DOWN_AFTER_MS = 500
_QUORUM = 2


class Server:
    """One process of the store or a sentinel, and its folder."""

    def __init__(self, folder: Path, config: str, *, is_sentinel: bool, port: int) -> None:
        folder.mkdir()
        self.port = port
        self._config = folder / "server.conf"  # a sentinel writes what it knows into it
        self._config.write_text(f"port {port}\nbind 127.0.0.1\ndir {folder}\nlogfile {folder}/log\n{config}")
        self._is_sentinel = is_sentinel
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start the process; it may not answer yet."""
        command = [str(find_binary().path), str(self._config), *(["--sentinel"] if self._is_sentinel else []), *more]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def signal(self, number: int) -> None:
        """SIGSTOP: it hangs, as if cut off; SIGCONT: it goes on."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill with SIGKILL and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def client(self) -> "Redis":
        """A client that waits a second at most."""
        password = SENTINEL_PASSWORD if self._is_sentinel else PASSWORD
        return Redis(port=self.port, password=password, socket_timeout=1, decode_responses=True)


class Replicas:
    """The servers of one store and its sentinels. `start` begins them."""

    def __init__(self, folder: Path, num_servers: int = 2) -> None:
        ports = _free_ports(num_servers + 3)
        store = (
            "appendonly yes\nappendfsync always\nsave ''\nmaxmemory-policy noeviction\nrepl-diskless-sync-delay 0\n"
            f"requirepass {PASSWORD}\nmasterauth {PASSWORD}\n"
        )
        self.servers = [
            Server(folder / f"server-{port}", store, is_sentinel=False, port=port) for port in ports[:num_servers]
        ]
        watch = (
            f"sentinel monitor {SERVICE} 127.0.0.1 {ports[0]} {_QUORUM}\n"
            f"sentinel auth-pass {SERVICE} {PASSWORD}\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
            f"requirepass {SENTINEL_PASSWORD}\nsentinel sentinel-pass {SENTINEL_PASSWORD}\n"
        )
        self.sentinels = [
            Server(folder / f"sentinel-{port}", watch, is_sentinel=True, port=port) for port in ports[num_servers:]
        ]

    def start(self) -> None:
        """Start everything; all servers follow the first one, and all sentinels know that, when this returns."""
        for server in self.servers:
            server.start(*self._following(self.servers[0], server))
        _wait(lambda: all(server.client().ping() for server in self.servers))
        _wait(lambda: self._num_following(self.servers[0]) == len(self.servers) - 1)
        for sentinel in self.sentinels:
            sentinel.start()
        _wait(lambda: all(self._knows_all(sentinel) for sentinel in self.sentinels))

    @property
    def url(self) -> str:
        """For AGON_REDIS_URL; the passwords are PASSWORD and SENTINEL_PASSWORD."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    def primary(self) -> Server:
        """The server that the first sentinel names."""
        port = _primary_port(self.sentinels[0])
        return next(server for server in self.servers if server.port == port)

    def others(self) -> list[Server]:
        """The servers that are not the primary."""
        primary = self.primary()
        return [server for server in self.servers if server is not primary]

    def wait_for_another(self, former: Server, timeout_s: float = 30) -> Server:
        """The new primary, as soon as all sentinels name it."""

        def has_changed() -> bool:
            named = {_primary_port(sentinel) for sentinel in self.sentinels}
            return len(named) == 1 and former.port not in named

        _wait(has_changed, timeout_s)
        return self.primary()

    def rejoin(self, server: Server) -> None:
        """Start a killed server again as a replica; it is in step when this returns."""
        primary = self.primary()
        server.start(*self._following(primary, server))
        self.wait_in_step()

    def wait_in_step(self) -> None:
        """Return when all servers but one follow the primary, and all sentinels see them."""
        _wait(lambda: self._num_following(self.primary()) == len(self.servers) - 1)
        _wait(lambda: all(self._knows_all(sentinel) for sentinel in self.sentinels))

    def kill_all(self) -> None:
        """Kill every process."""
        for server in [*self.sentinels, *self.servers]:
            with contextlib.suppress(AssertionError, ProcessLookupError):
                server.kill()

    def _following(self, primary: Server, server: Server) -> tuple[str, ...]:
        return () if server is primary else ("--replicaof", "127.0.0.1", str(primary.port))

    def _num_following(self, server: Server) -> int:
        found: Any = server.client().info("replication")
        lines = [found.get(f"slave{number}", {}) for number in range(int(found["connected_slaves"]))]
        return sum(line.get("state") == "online" for line in lines)

    def _knows_all(self, sentinel: Server) -> bool:
        state: Any = sentinel.client().sentinel_master(SERVICE)
        replicas: Any = sentinel.client().sentinel_slaves(SERVICE)
        healthy = [one for one in replicas if not (one["is_sdown"] or one["is_disconnected"])]
        others = int(state["num-other-sentinels"])
        return others == len(self.sentinels) - 1 and len(healthy) == len(self.servers) - 1 and not state["is_sdown"]


@contextlib.contextmanager
def running_replicas(folder: Path, num_servers: int = 2) -> Generator[Replicas, None, None]:
    """Servers and sentinels with their data in `folder`, until the block ends."""
    folder.mkdir(exist_ok=True)
    replicas = Replicas(folder, num_servers)
    try:
        replicas.start()
        yield replicas
    finally:
        replicas.kill_all()


def _primary_port(sentinel: Server) -> int:
    found: Any = sentinel.client().sentinel_get_master_addr_by_name(SERVICE)
    return int(found[1])


def _wait(holds: object, timeout_s: float = 30) -> None:
    assert callable(holds)
    give_up_at = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(RedisError, OSError):
            if holds():
                return
        assert time.monotonic() < give_up_at, "the servers did not come together"
        time.sleep(0.05)


def _free_ports(number: int) -> list[int]:
    """Ports that nothing listens on, below the range that the kernel gives to clients."""
    first = free_ports(number - 2).controller
    return list(range(first, first + number))
