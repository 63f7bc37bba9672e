"""Runs a store server for one command, on the files of a stopped arena or on a copy of them."""

import fcntl
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.arena.embedded_redis import EmbeddedRedis, StoreBinary
from cli.errors import StoreError, StoreRefused

FOLDER = "appendonlydir"  #: of the append-only files, in the folder of the store

_START_PATIENCE_S = 300.0  #: loading the largest files that fit into memory
_STOP_PATIENCE_S = 30.0
_POLL_S = 0.02


@contextmanager
def served_store(folder: Path, binary: StoreBinary) -> Iterator[str]:
    """The URL of a server on the store in `folder`, until the block ends. Raises StoreRefused if it does not load the
    files, StoreError if another one runs there."""
    store = EmbeddedRedis(folder, binary)
    with open(store.lock_path, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"another store runs in {folder}.") from None
        store.prepare()
        server = subprocess.Popen(
            store.command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not stop it before its client
            pass_fds=(lock.fileno(),),
        )
        try:
            _wait_for(store, server)
            yield store.url
        finally:
            _stop(server)


@contextmanager
def copied_store(folder: Path, binary: StoreBinary) -> Iterator[str]:
    """The URL of a server on a copy of the store in `folder`, which stays as it is. Raises StoreRefused."""
    with tempfile.TemporaryDirectory(prefix="agon-store-") as scratch:
        copy = copy_of(folder, Path(scratch))
        with served_store(copy, binary) as url:
            yield url


def loads(folder: Path, binary: StoreBinary) -> bool:
    """Whether a server loads the files of the store. Takes as long as a start."""
    try:
        with copied_store(folder, binary):
            return True
    except StoreRefused:
        return False


def copy_of(store: Path, target: Path) -> Path:
    """Copy the append-only files into a new folder in `target`. Returns that folder."""
    copy = target / "store"
    copy.mkdir(mode=0o700, parents=True)
    if (store / FOLDER).is_dir():
        shutil.copytree(store / FOLDER, copy / FOLDER)
    return copy


def _wait_for(store: EmbeddedRedis, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_PATIENCE_S
    while not store.answers():
        if server.poll() is not None:
            raise StoreRefused(f"the store in {store.folder} does not start; `agon store repair` mends its files.")
        if time.monotonic() > deadline:
            raise StoreError(f"the store in {store.folder} does not answer after {_START_PATIENCE_S:.0f} s.")
        time.sleep(_POLL_S)


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(_STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
