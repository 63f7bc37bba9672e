"""Warm starts: a process that has imported one service and forks a child for each start of it.

`python -m tests.faults.fork_server PACKAGE` reads requests from standard input, one JSON object a line, and answers
each with the child's process id. The child runs the service's own `main` with the arguments and the environment of the
request. So a service that was killed is back in a few milliseconds instead of the seconds that its imports take, and a
thousand kills are affordable. The parent never starts a thread or an event loop. PACKAGE `exec` imports nothing: its
children become another program, the store.
"""

import asyncio
import ctypes
import gc
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG = 1
#: Variable with the file into which a child writes the number of its asyncio tasks when it gets SIGUSR2.
TASKS_FILE = "AGON_FAULTS_TASKS_FILE"


def main() -> None:
    """Import, then fork until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    run = _prepare(sys.argv[1])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Threads of libraries (pyarrow's allocator) know of forks; those of Python would hold its locks for ever.
    assert threading.active_count() == 1, f"{threading.enumerate()} run before the first fork"
    gc.collect()
    gc.freeze()
    answers.write("ready\n")
    for line in sys.stdin:
        request = json.loads(line)
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            answers.close()
            _become_child(parent, request, run)
        answers.write(f"{child}\n")


def _prepare(package: str) -> Callable[[list[str]], int]:
    gc.disable()  # as model_worker/__main__.py does; the services turn it on
    match package:
        case "controller":
            from controller.__main__ import main as controller_main

            gc.enable()
            return controller_main
        case "model_worker":
            import model_worker.app
            from model_worker.main import main as worker_main

            assert model_worker.app is not None
            return worker_main
        case "webui":
            gc.enable()
            return _prepare_webui()
        case "exec":
            return _exec
    raise SystemExit(f"unknown package {package}")


def _exec(arguments: list[str]) -> int:
    os.execv(arguments[0], arguments)


def _prepare_webui() -> Callable[[list[str]], int]:
    """The pages are built before the fork, too: they take most of a start and depend on no address but the
    controller's, which is the same at every start."""
    from service_kit.telemetry import switch_telemetry_off

    switch_telemetry_off()
    from fastapi import FastAPI

    import webui.app
    from webui.__main__ import main as webui_main
    from webui.config import Settings

    app = webui.app.create_app(Settings())

    def create_again(settings: Settings) -> FastAPI:
        random.seed()
        return app

    webui.app.create_app = create_again

    def run(arguments: list[str]) -> int:
        webui_main(arguments)
        return 0

    return run


def _become_child(parent: int, request: dict[str, Any], run: Callable[[list[str]], int]) -> None:
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(log)
        os.close(nothing)
        os.environ.clear()
        os.environ.update(request["environment"])
        if TASKS_FILE in os.environ:
            signal.signal(signal.SIGUSR2, _report_tasks)
        sys.argv = ["service", *request["arguments"]]
        code = run(request["arguments"])
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _report_tasks(_: int, __: FrameType | None) -> None:
    """Names of the tasks of this thread's loop; written to another file first, so that a reader sees all or nothing."""
    loop = asyncio._get_running_loop()
    tasks = asyncio.all_tasks(loop) if loop is not None else set()
    path = Path(os.environ[TASKS_FILE])
    names = sorted(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)
    path.with_suffix(".part").write_text(json.dumps(names))
    path.with_suffix(".part").replace(path)


if __name__ == "__main__":
    main()
