"""The parent's side of an engine in a process of its own: starts the process, writes commands, reads what it has done,
and notices its end.

Two threads, because neither a slow engine may stop the callers, nor a slow caller the engine.
"""

import logging
import queue
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

from engine.backend import Command, Drain, Receiver, Serving, Stop
from engine.config import EngineConfig
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.vocabulary import Vocabulary
from engine.engine_process.messages import (
    HEAD,
    AdapterDone,
    Died,
    Load,
    LoadError,
    Ready,
    Shown,
    Stepped,
    to_child,
    to_parent,
)
from engine.errors import EngineDead
from engine.memory.admission import AdmissionRule
from engine.parallel.processes import END_S, end_children, how_ended, start_module
from engine.scheduling.admission_control import AdmissionControl

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class EngineProcess:
    """A Backend. The process ends with this one, however that ends."""

    def __init__(
        self,
        config: EngineConfig,
        module: str,
        receiver: Receiver,
        read_tokenizer: Callable[[EngineConfig], "Tokenizer"] | None = None,
    ) -> None:
        """Starts `python -m MODULE FD`, which calls `serve_parent` (child.py), and the threads."""
        self._config = config
        self._receiver = receiver
        self._read_tokenizer = read_tokenizer or _read_tokenizer
        self._outbox: queue.SimpleQueue[Command | Load | None] = queue.SimpleQueue()
        self._outbox.put(Load(config))
        self._is_ending = False  # it was told to end
        self._serving: Serving | None = None
        self._is_dead = False
        self._socket, its_socket = socket.socketpair()
        with its_socket:
            self._process = start_module([module, str(its_socket.fileno())], pass_fds=[its_socket.fileno()])
        # Ends the process even if this one never says Stop, for example at the end of the interpreter.
        self._finalizer = weakref.finalize(self, end_children, [self._process])
        for run in (self._write, self._read):
            threading.Thread(target=run, name=f"engine-process{run.__name__}", daemon=True).start()

    def send(self, command: Command) -> None:
        """See Backend."""
        if isinstance(command, Drain | Stop):
            self._is_ending = True
        self._outbox.put(command)

    def is_alive(self) -> bool:
        """See Backend."""
        return self._process.poll() is None

    def kill(self) -> None:
        """See Backend."""
        self._process.kill()

    # The writing thread.

    def _write(self) -> None:
        language = to_child()
        while (command := self._outbox.get()) is not None:
            try:
                self._socket.sendall(language.encode(command))
            except OSError:  # it has ended, as the reading thread sees
                continue
            except Exception:  # a value that no message can carry: do not go on without it
                logger.exception("a command could not be sent to the engine's process")
                self.kill()

    # The reading thread.

    def _read(self) -> None:
        error: Exception | None = None
        try:
            with self._socket.makefile("rb") as file:
                error = self._listen(file)
        except Exception as raised:  # the tokenizer cannot be read here, or no message of ours
            error = raised
            self.kill()
        code = self._wait()
        self._outbox.put(None)
        self._socket.close()
        if self._serving is None:
            reason = f"the engine's process {how_ended(code)} while it loaded the model"
            self._receiver.on_load_error(error or EngineDead(reason))
        elif not self._is_dead and not (self._is_ending and code == 0 and error is None):
            reason = f"the engine's process {how_ended(code)}" if error is None else f"no message: {error!r}"
            logger.error("%s", reason)
            self._receiver.on_death(EngineDead(reason))
        self._receiver.on_end()

    def _listen(self, file: BinaryIO) -> Exception | None:
        """Read until the process closes its end; returns why it could not load the model."""
        language = to_parent()
        while (head := _read_exactly(file, HEAD.size)) is not None:
            num_bytes, number = HEAD.unpack(head)
            body = _read_exactly(file, num_bytes)
            if body is None:  # killed half-way through a message
                return None
            message = language.decode(number, body)
            if isinstance(message, LoadError):
                return message.as_exception()
            self._take(message)
        return None

    def _take(self, message: Any) -> None:
        match message:
            case Stepped():
                assert self._serving is not None
                if message.num_started:
                    self._serving.admission.release_place(message.num_started_tokens, message.num_started)
                self._receiver.on_step(message.deltas, message.stats)
            case Shown():
                self._receiver.on_picture(message.ticket, message.cells)
            case AdapterDone():
                self._receiver.on_adapter(message.ticket, message.info, message.refusal)
            case Ready():
                self._serving = self._serve(message)
                self._receiver.on_loaded(self._serving)
            case Died():
                self._is_dead = True
                self._receiver.on_death(EngineDead(message.sentence))

    def _serve(self, ready: Ready) -> Serving:
        admission = AdmissionControl(
            AdmissionRule(ready.pool_plan, ready.step_limits.max_batched_tokens),
            ready.limits,
            max_running=ready.step_limits.max_running,
            max_requests=self._config.max_queued_requests,
            max_tokens=self._config.max_queued_tokens,
        )
        tokenizer = self._read_tokenizer(self._config)
        vocabulary = Vocabulary(tokenizer, ready.limits.vocab_size, ready.limits.eos_token_ids)
        compiler = GrammarCompiler(vocabulary, closes_answers=self._config.close_answers)
        compiler.prepare()
        return Serving(admission, ready.limits, ready.step_limits, ready.info, tokenizer, ready.stats, compiler)

    def _wait(self) -> int:
        """The exit code of the process, which has closed its socket."""
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        self._finalizer()
        return code


def _read_exactly(file: BinaryIO, num_bytes: int) -> bytes | None:
    """None: the process has ended before."""
    try:
        read = file.read(num_bytes)
    except ConnectionResetError:  # it had not read all commands
        return None
    return read if len(read) == num_bytes else None


def _read_tokenizer(config: EngineConfig) -> "Tokenizer":
    from engine.loader import find_model_folder
    from engine.text.tokenizer import Tokenizer

    return Tokenizer.of_model(find_model_folder(config.model), has_weights=config.load_format != "dummy")
