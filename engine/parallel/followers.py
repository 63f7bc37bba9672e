"""The follower processes of tensor parallelism: the leader process, which has the requests, starts, watches and ends
them.

Followers are child processes (processes.py), so they end with the leader. The processes meet at a store of
torch.distributed that listens on the loopback interface only; nothing on it is unpickled.
"""

import contextlib
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta

from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from engine.errors import RankLost
from engine.parallel.processes import end_children, end_with_parent, how_ended, start_module

#: Time limit for a follower to import torch and report that it is ready, on a busy machine.
_START_S = 300.0
_STORE_TIMEOUT = timedelta(seconds=60)
_LOOPBACK = "127.0.0.1"


class Followers:
    """Ranks 1 and above. Owned by the leader; `lost` and `is_alive` may be called by any thread."""

    def __init__(self, size: int, module: str) -> None:
        """Starts `python -m module RANK SIZE PORT` for each rank from 1 on. size: number of processes with the
        leader."""
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
        # Ends the processes even if `close` is never called, for example at the end of the interpreter.
        self._finalizer = weakref.finalize(self, _end, self._processes, self._is_ending)
        for rank in range(1, size):
            self._processes.append(start_module([module, str(rank), str(size), str(port)]))

    def wait_until_ready(self) -> None:
        """Wait until each has called `say_ready`. Raises RankLost if one ends or takes too long."""
        deadline = time.monotonic() + _START_S
        for rank in range(1, len(self._processes) + 1):
            while not self.store.check([_ready(rank)]):
                if (reason := self.lost()) is not None:
                    raise RankLost(reason)
                if time.monotonic() > deadline:
                    raise RankLost(f"rank {rank} of tensor parallelism did not start within {_START_S:.0f} s")
                time.sleep(0.02)

    def watch(self, on_loss: Callable[[str], None]) -> None:
        """From now on call on_loss with the reason when a follower ends unexpectedly, in a thread of its own. on_loss
        must not refer to this object: the processes end when the last reference to it is gone."""
        store, is_ending = self.store, self._is_ending

        def wait(rank: int, process: "subprocess.Popen[bytes]") -> None:
            code = process.wait()
            if not is_ending.is_set():
                on_loss(_reason(store, rank, code))

        for watched in enumerate(self._processes, start=1):
            threading.Thread(target=wait, args=watched, name="follower-watch", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether all of them run."""
        return all(process.poll() is None for process in self._processes)

    def lost(self, within_s: float = 0.0) -> str | None:
        """Why one of them has ended; waits up to within_s seconds for that. None: all run."""
        deadline = time.monotonic() + within_s
        while True:
            for rank, process in enumerate(self._processes, start=1):
                if process.poll() is not None:
                    return _reason(self.store, rank, process.returncode)
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.02)

    def close(self) -> None:
        """End them; kill those that have not ended after some seconds."""
        self._finalizer()


def say_ready(store: Store, rank: int) -> None:
    """In a follower: report that it has started, for `Followers.wait_until_ready`."""
    store.set(_ready(rank), "")


def say_failed(store: Store, rank: int, reason: str) -> None:
    """In a follower: report why it ends, for the leader's error message."""
    store.set(_error(rank), reason)


def meet_leader(port: int) -> Store:
    """In a follower: connect to the leader's store. From now on this process ends when the leader ends."""
    end_with_parent()
    store: Store = TCPStore(_LOOPBACK, port, is_master=False, timeout=_STORE_TIMEOUT)
    return store


def _reason(store: Store, rank: int, code: int) -> str:
    who = f"rank {rank} of tensor parallelism"
    with contextlib.suppress(RuntimeError):
        if store.check([_error(rank)]):
            return f"{who} has failed: {store.get(_error(rank)).decode()}"
    return f"{who} {how_ended(code)}"


def _end(processes: Sequence["subprocess.Popen[bytes]"], is_ending: threading.Event) -> None:
    is_ending.set()
    end_children(processes)


def _ready(rank: int) -> str:
    return f"ready/{rank}"


def _error(rank: int) -> str:
    return f"error/{rank}"
