"""Child processes of an engine that run a module of ours: how they start, why they have ended, and that none of them
outlives its parent.

A child's standard input closes when its parent ends, even by kill -9; the child then ends too. No torch.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

#: Time limit for a child to end. Then it is killed.
END_S = 10.0


def start_module(arguments: Sequence[str], pass_fds: Sequence[int] = ()) -> "subprocess.Popen[bytes]":
    """Start `python -m ARGUMENTS` with the engine of this process, whatever lies in the working directory."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-P", "-m", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, pass_fds=pass_fds)


def end_children(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """End them by closing their standard input; kill those that have not ended after some seconds."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    deadline = time.monotonic() + END_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def how_ended(code: int) -> str:
    """What an exit code says, as "was killed by SIGKILL"."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"has ended with code {code}"


def end_with_parent() -> None:
    """In a child: from now on this process ends when its parent ends."""
    threading.Thread(target=_wait_for_the_end, name="parent-watch", daemon=True).start()


def leave_signals_to_parent() -> None:
    """In a child: ignore SIGINT and SIGTERM. Ctrl-C and a service manager's SIGTERM reach all processes at once, but
    the parent needs its children while the last answers run, and ends them itself."""
    if threading.current_thread() is threading.main_thread():  # only the main thread may
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, signal.SIG_IGN)


def _wait_for_the_end() -> None:
    while os.read(0, 1):  # blocks until the parent ends; sys.stdin would hold a lock at the interpreter's end
        pass
    os._exit(0)  # the parent has exited: stop now
