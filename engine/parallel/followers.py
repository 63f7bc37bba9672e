"""The processes that compute a model together with the one that has its requests: started, watched and ended by it.

Each is tied to the leader by its standard input, which closes when the leader ends in whatever way, kill -9 included.
They meet at a store of torch.distributed that listens on the loopback interface alone; nothing on it is unpickled.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from engine.errors import RankLost

#: To import torch and to say hello, on a machine that has much else to do.
_START_S = 300.0
#: To leave the last step. Then a follower is killed.
_END_S = 10.0
_STORE_TIMEOUT = timedelta(seconds=60)
_LOOPBACK = "127.0.0.1"


class Followers:
    """Ranks 1 and up. Owned by the leader; `lost` and `is_alive` may be asked from any thread."""

    def __init__(self, size: int, module: str) -> None:
        """Starts `python -m module RANK SIZE PORT` for each; size counts the leader itself."""
        listener = socket.create_server((_LOOPBACK, 0))
        port = listener.getsockname()[1]
        self.store: Store = TCPStore(
            _LOOPBACK,
            port,
            is_master=True,
            timeout=_STORE_TIMEOUT,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        self._is_ending = threading.Event()
        self._processes: list[subprocess.Popen[bytes]] = []
        # Also when nobody calls close: the interpreter's end is in order, and no process stays.
        self._finalizer = weakref.finalize(self, _end, self._processes, self._is_ending)
        for rank in range(1, size):
            self._processes.append(_start([module, str(rank), str(size), str(port)]))

    def wait_until_ready(self) -> None:
        """Until each has said so (`say_ready`). Raises RankLost where one cannot."""
        deadline = time.monotonic() + _START_S
        for rank in range(1, len(self._processes) + 1):
            while not self.store.check([_ready(rank)]):
                if (reason := self.lost()) is not None:
                    raise RankLost(reason)
                if time.monotonic() > deadline:
                    raise RankLost(f"rank {rank} of tensor parallelism did not start within {_START_S:.0f} s")
                time.sleep(0.02)

    def watch(self, on_loss: Callable[[str], None]) -> None:
        """From now on, on_loss is called with the reason when one ends without having been told to, in a thread of its
        own. It must not refer to this object, which ends the processes when nobody refers to it any more."""
        store, is_ending = self.store, self._is_ending

        def wait(rank: int, process: "subprocess.Popen[bytes]") -> None:
            code = process.wait()
            if not is_ending.is_set():
                on_loss(_reason(store, rank, code))

        for watched in enumerate(self._processes, start=1):
            threading.Thread(target=wait, args=watched, name="follower-watch", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return all(process.poll() is None for process in self._processes)

    def lost(self, within_s: float = 0.0) -> str | None:
        """Why one of them has ended; None while all run, and for as long as that many seconds."""
        deadline = time.monotonic() + within_s
        while True:
            for rank, process in enumerate(self._processes, start=1):
                if process.poll() is not None:
                    return _reason(self.store, rank, process.returncode)
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.02)

    def close(self) -> None:
        """End them, by force if they do not within some seconds."""
        self._finalizer()


def say_ready(store: Store, rank: int) -> None:
    store.set(_ready(rank), "")


def say_failed(store: Store, rank: int, reason: str) -> None:
    """For the leader's error message."""
    store.set(_error(rank), reason)


def meet_leader(port: int) -> Store:
    """In a follower: the store of the leader, and from now on this process ends when the leader does."""
    threading.Thread(target=_end_with_leader, name="leader-watch", daemon=True).start()
    store: Store = TCPStore(_LOOPBACK, port, is_master=False, timeout=_STORE_TIMEOUT)
    return store


def leave_signals_to_leader() -> None:
    """Ctrl-C and a service manager's SIGTERM reach all processes at once; the leader still needs this one while its
    last answers run, and ends it in its time."""
    if threading.current_thread() is threading.main_thread():  # no other may
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, signal.SIG_IGN)


def _end_with_leader() -> None:
    while os.read(0, 1):  # nothing is ever written; not sys.stdin, whose lock the interpreter's end would wait for
        pass
    os._exit(0)  # in the middle of whatever this is: there is nobody left to tell


def _start(arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    # The follower imports this very engine, whatever lies in the working directory.
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-P", "-m", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)


def _reason(store: Store, rank: int, code: int) -> str:
    who = f"rank {rank} of tensor parallelism"
    with contextlib.suppress(RuntimeError):
        if store.check([_error(rank)]):
            return f"{who} has failed: {store.get(_error(rank)).decode()}"
    return f"{who} was killed by {signal.Signals(-code).name}" if code < 0 else f"{who} has ended with code {code}"


def _end(processes: Sequence["subprocess.Popen[bytes]"], is_ending: threading.Event) -> None:
    is_ending.set()
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    deadline = time.monotonic() + _END_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(rank: int) -> str:
    return f"ready/{rank}"


def _error(rank: int) -> str:
    return f"error/{rank}"
