"""The engine in a thread of the process that has its callers: the thread loads the model, serves and closes it."""

import queue
import threading
from collections.abc import Callable

from engine.backend import Command, Receiver, Serving
from engine.engine_loop import serve_core
from engine.loaded_engine import LoadedEngine
from engine.runner.free_heap import return_free_heap


class EngineThread:
    """A Backend."""

    def __init__(self, load: Callable[[], LoadedEngine], receiver: Receiver) -> None:
        """Starts the thread, which runs `load` first."""
        self._inbox = _Queue()
        self._receiver = receiver
        self._are_all_alive: Callable[[], bool] = lambda: True
        threading.Thread(target=self._run, args=(load,), name="engine", daemon=True).start()

    def send(self, command: Command) -> None:
        """See Backend."""
        self._inbox.put(command)

    def is_alive(self) -> bool:
        """See Backend."""
        return self._are_all_alive()

    def kill(self) -> None:
        """Nothing ends a thread that loads a model; it is a daemon, so the process can end."""

    def _run(self, load: Callable[[], LoadedEngine]) -> None:
        try:
            loaded = load()
        except BaseException as error:
            self._receiver.on_load_error(error)
        else:
            core = loaded.core
            core.compiler.prepare()
            return_free_heap()  # reading a large vocabulary frees as much as it keeps
            self._are_all_alive = loaded.is_alive
            limits = (core.admission, core.limits, core.step_limits)
            serving = Serving(*limits, loaded.info, loaded.tokenizer, core.stats(), core.compiler)
            self._receiver.on_loaded(serving)
            serve_core(core, self._inbox, self._receiver)
        self._receiver.on_end()


class _Queue:
    """An Inbox that other threads fill. `put` may be called by a finaliser, at any moment: it takes no lock."""

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.put = self._commands.put

    def take(self) -> Command | None:
        try:
            return self._commands.get_nowait()
        except queue.Empty:
            return None

    def wait(self, timeout_s: float | None) -> Command | None:
        try:
            return self._commands.get(timeout=timeout_s)
        except queue.Empty:
            return None
