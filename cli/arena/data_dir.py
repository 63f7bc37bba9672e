"""The data directory of one arena: its lock, secrets, logs and store.

Only the user can read it (mode 0700). This module handles paths and files and starts no process.
"""

import fcntl
import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from cli.errors import CliError, DataDirInUse
from service_kit.settings import secret_of
from wire.releases import newer_than_this, stamp


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secrets that the services of one arena share, made once. A new `voter_key` gives returning voters new
    pseudonyms. A secret that the file of an older version lacks is added to it."""

    worker_token: str
    admin_token: str
    voter_key: str
    proxy_token: str


@dataclass(frozen=True, slots=True)
class Running:
    """What a running arena writes into its lock file, so that other commands find it."""

    pid: int
    webui_url: str
    controller_url: str


class DataDir:
    """Created by `agon up`; read by the commands that talk to a running arena."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._lock_file: IO[str] | None = None

    @property
    def logs(self) -> Path:
        """Folder of the log files, one per process."""
        return self.path / "logs"

    @property
    def store(self) -> Path:
        """Folder of the embedded store's files."""
        return self.path / "store"

    def journal(self, redis_url: str | None = None) -> Path:
        """Folder of the controller's journal: AGON_JOURNAL_DIR, or one in this directory for each store, because a
        journal belongs to one arena. `redis_url`: an external store."""
        if path := os.environ.get("AGON_JOURNAL_DIR"):
            return Path(path)
        return self._of_store("journal", redis_url)

    def boards(self, redis_url: str | None = None) -> Path:
        """Folder of the checkpoints of the boards: AGON_BOARDS_DIR, or one in this directory for each store."""
        if path := os.environ.get("AGON_BOARDS_DIR"):
            return Path(path)
        return self._of_store("boards", redis_url)

    def models_file(self, model: str | None = None) -> Path:
        """Where a worker keeps the models that were added to it or removed from it while it ran. `model`: of a worker
        that has a process to itself; None: of the one that all models share."""
        return self.path / ("models.json" if model is None else f"models-{quote(model, safe='')}.json")

    @property
    def groups_file(self) -> Path:
        """The models that have worker processes of their own, with the numbers of their replicas."""
        return self.path / "replicas.json"

    @property
    def cluster(self) -> Path:
        """Folder of what a placement on several machines keeps."""
        return self.path / "cluster"

    @property
    def processes_file(self) -> Path:
        """The states of the processes, while an arena runs."""
        return self.path / "processes.json"

    def _of_store(self, name: str, redis_url: str | None) -> Path:
        if redis_url is None:
            return self.path / name
        return self.path / f"{name}-{hashlib.sha256(redis_url.encode()).hexdigest()[:8]}"

    @property
    def _lock_path(self) -> Path:
        return self.path / "agon.lock"

    @property
    def _secrets_path(self) -> Path:
        return self.path / "secrets.json"

    def create(self) -> None:
        """Create the folders; raises CliError."""
        try:
            for folder in (self.path, self.logs, self.store):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CliError(f"cannot create the data directory {self.path}: {error.strerror}.") from None

    def lock(self, running: Running) -> None:
        """Hold the directory until `unlock` or the end of this process. Raises DataDirInUse, and CliError where a newer
        release has written it."""
        file = open(self._lock_path, "a+", encoding="utf-8")  # noqa: SIM115 - held open as long as the lock
        os.chmod(self._lock_path, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = self.running()
            file.close()
            holder = f"pid {other.pid}, {other.webui_url}" if other else "its pid is not written yet"
            raise DataDirInUse(f"an arena already runs on {self.path} ({holder}).") from None
        try:
            self._stamp()
        except CliError:
            file.close()
            raise
        file.truncate(0)
        file.write(json.dumps(asdict(running)))
        file.flush()
        self._lock_file = file

    def unlock(self) -> None:
        """Release the directory; does nothing if it is not locked."""
        if self._lock_file is not None:
            self._lock_file.truncate(0)
            self._lock_file.close()
            self._lock_file = None

    def running(self) -> Running | None:
        """The arena that holds the lock; None if none does, or if it has not written its data yet."""
        try:
            with open(self._lock_path, encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return Running(**json.load(file))
        except (OSError, ValueError, TypeError):
            pass
        return None

    def _stamp(self) -> None:
        """Name the format of the directory. Raises CliError where it has a newer one."""
        path = self.path / "format.json"
        try:
            problem = newer_than_this(path.read_text(encoding="utf-8"), str(self.path))
        except FileNotFoundError:
            problem = None
        except (OSError, ValueError) as error:
            raise CliError(f"{path} cannot be read: {error}.") from None
        if problem is not None:
            raise CliError(problem)
        try:
            path.write_text(stamp(), encoding="utf-8")
        except OSError as error:
            raise CliError(f"cannot write {path}: {error.strerror}.") from None

    def has_secrets(self) -> bool:
        """True if the secrets have been written."""
        return self._secrets_path.exists()

    def secrets(self) -> Secrets:
        """Read the secrets; make them at the first call. Variables of the environment and their files override it."""
        stored = self._read_secrets()
        made = Secrets(
            worker_token=stored.get("worker_token") or secrets.token_urlsafe(32),
            admin_token=stored.get("admin_token") or secrets.token_urlsafe(32),
            voter_key=stored.get("voter_key") or secrets.token_urlsafe(32),
            proxy_token=stored.get("proxy_token") or secrets.token_urlsafe(32),
        )
        if stored != asdict(made):
            self._write_secrets(made)
        return Secrets(
            worker_token=secret_from_environment("AGON_WORKER_TOKEN") or made.worker_token,
            admin_token=secret_from_environment("AGON_ADMIN_TOKEN") or made.admin_token,
            voter_key=secret_from_environment("AGON_VOTER_KEY") or made.voter_key,
            proxy_token=secret_from_environment("AGON_PROXY_TOKEN") or made.proxy_token,
        )

    @property
    def worker_token_file(self) -> Path:
        """The worker token alone, to be copied to the machines that join the arena."""
        return self.path / "worker.token"

    def write_worker_token(self, made: Secrets) -> None:
        """Write that file, which only the user can read. Raises CliError."""
        try:
            descriptor = os.open(self.worker_token_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(f"{made.worker_token}\n")
        except OSError as error:
            raise CliError(f"cannot write {self.worker_token_file}: {error.strerror}.") from None

    def _read_secrets(self) -> dict[str, Any]:
        try:
            stored = json.loads(self._secrets_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise CliError(f"{self._secrets_path} cannot be read: {error}. Delete it to make new secrets.") from None
        return stored if isinstance(stored, dict) else {}

    def _write_secrets(self, made: Secrets) -> None:
        """Write a new file and rename it, so that a crash leaves either the old secrets or the new ones."""
        partial = self._secrets_path.with_suffix(".new")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(made), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._secrets_path)


def secret_from_environment(name: str) -> str | None:
    """The secret of the variable `name`, or of the file that `name`_FILE names. Raises CliError."""
    try:
        return secret_of(os.environ, name)
    except ValueError as error:
        raise CliError(f"{error}.") from None


def default_data_dir() -> Path:
    """AGON_DATA_DIR, or `.agon` where the command was started."""
    return Path(os.environ.get("AGON_DATA_DIR") or ".agon")
