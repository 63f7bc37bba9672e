"""The engine's process: loads the model and serves its parent until that says so or has ended. One thread does it all.

Writing never waits. If the parent does not read, deltas are merged until it does. The main functions of such processes
(model_worker/engine_process.py) set up logging and call `serve_parent`.
"""

import gc
import logging
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence

from engine.adapter_info import AdapterInfo
from engine.backend import Add, Command, Stop
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.engine_loop import serve_core
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
from engine.errors import EngineDead, RankLost
from engine.loaded_engine import LoadedEngine, load_engine
from engine.memory.ledger import PoolCell
from engine.parallel.processes import end_with_parent, leave_signals_to_parent
from engine.request import RequestDelta, gather_delta, merge_deltas
from engine.stats import EngineStats

logger = logging.getLogger(__name__)

_READ_BYTES = 1 << 16
#: With more than this unread by the parent, deltas are merged before they are sent.
_MOST_UNSENT_BYTES = 1 << 18
#: How often an idle engine looks whether the other processes of its model run.
_WATCH_S = 0.5


def serve_parent(load: Callable[[EngineConfig], LoadedEngine] | None = None) -> int:
    """The life of the process; returns its exit code. The last argument of its command line is the socket.

    load: makes the engine, without a queue bound, since the parent has one; None: load_engine.
    """
    leave_signals_to_parent()
    end_with_parent()
    link = _ParentLink(socket.socket(fileno=int(sys.argv[-1])))
    try:
        config = link.hear_config()
        loaded = load(config) if load is not None else load_engine(config, has_queue_bound=False)
        loaded.core.compiler.prepare()
    except Exception as error:
        message = LoadError.of(error)
        if not message.is_expected:
            logger.exception("the model could not be loaded")
        link.send(message)
        link.close()
        return 1
    gc.freeze()  # modules and model stay for ever: no collection needs to traverse them
    link.begin(loaded)
    serve_core(loaded.core, link, link)
    link.close()
    return 0


class _ParentLink:
    """Inbox and Outlet of the engine's loop."""

    def __init__(self, its_socket: socket.socket) -> None:
        its_socket.setblocking(False)
        self._socket = its_socket
        self._poll = select.poll()
        self._hears, self._says = to_child(), to_parent()
        self._received = bytearray()
        self._unsent = bytearray()
        self._has_parent = True
        self._held: dict[tuple[str, int], list[RequestDelta]] = {}  # by sample: what waits until the parent reads
        self._stats: EngineStats | None = None  # newer than those that were sent last
        self._core: EngineCore | None = None
        self._are_all_alive: Callable[[], bool] = lambda: True
        self._num_known, self._num_known_tokens = 0, 0  # waiting requests, as far as the parent knows

    def hear_config(self) -> EngineConfig:
        """Wait for the first message."""
        message = self._next(None)
        assert isinstance(message, Load)
        return message.config

    def begin(self, loaded: LoadedEngine) -> None:
        """Say that the model is loaded."""
        core = self._core = loaded.core
        self._are_all_alive = loaded.is_alive
        self.send(Ready(core.limits, core.step_limits, core.pool_plan, loaded.info, core.stats()))

    def send(self, message: object) -> None:
        """Send a message, now or as soon as the parent reads."""
        self._unsent += self._says.encode(message)
        self._transmit()

    def close(self) -> None:
        """Wait until the parent has read everything, or has ended, and close the socket."""
        self._send_held()
        self._socket.setblocking(True)
        self._transmit()
        self._socket.close()

    # Inbox

    def take(self) -> Command | None:
        """See Inbox."""
        message = self._receive()
        if isinstance(message, Add):
            assert self._core is not None
            num_tokens = len(message.prompt_token_ids) + len(message.resume_token_ids)
            self._core.admission.reserve_place(num_tokens)
            self._num_known += 1
            self._num_known_tokens += num_tokens
        assert not isinstance(message, Load)
        return message

    def wait(self, timeout_s: float | None) -> Command | None:
        """See Inbox."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (command := self.take()) is None:
            if not self._are_all_alive():
                raise RankLost("another process of tensor parallelism has gone")
            remaining_s = _WATCH_S if deadline is None else min(_WATCH_S, deadline - time.monotonic())
            if remaining_s <= 0:
                return None
            self._sleep(remaining_s)
        return command

    # Outlet

    def on_step(self, deltas: Sequence[RequestDelta], stats: EngineStats) -> None:
        """See Outlet."""
        self._stats = stats
        self._transmit()
        if not self._held and not self._is_clogged:
            self._send_step(tuple(deltas), stats)
            return
        for delta in deltas:
            gather_delta(self._held.setdefault((delta.request_id, delta.index), []), delta)
        if not self._is_clogged:
            self._send_held()

    def on_picture(self, ticket: int, cells: tuple[PoolCell, ...]) -> None:
        """See Outlet."""
        self.send(Shown(ticket, cells))

    def on_adapter(self, ticket: int, info: AdapterInfo | None, refusal: str) -> None:
        """See Outlet."""
        self._send_held()  # the last deltas of an adapter that is gone come before that
        self.send(AdapterDone(ticket, info, refusal))

    def on_death(self, error: EngineDead) -> None:
        """See Outlet."""
        self._send_held()
        self.send(Died(str(error)))

    @property
    def _is_clogged(self) -> bool:
        return len(self._unsent) > _MOST_UNSENT_BYTES

    def _send_held(self) -> None:
        """Send what has been held back, if anything, as one step."""
        if self._stats is not None:
            deltas = tuple(merge_deltas(waiting) for waiting in self._held.values())
            self._held.clear()
            self._send_step(deltas, self._stats)

    def _send_step(self, deltas: tuple[RequestDelta, ...], stats: EngineStats) -> None:
        assert self._core is not None
        admission = self._core.admission
        num_waiting, num_tokens = admission.num_requests, admission.num_tokens
        self.send(Stepped(deltas, stats, self._num_known - num_waiting, self._num_known_tokens - num_tokens))
        self._num_known, self._num_known_tokens = num_waiting, num_tokens
        self._stats = None

    # The socket

    def _next(self, timeout_s: float | None) -> "Command | Load":
        while (message := self._receive()) is None:
            self._sleep(timeout_s)
        return message

    def _receive(self) -> "Command | Load | None":
        """A message that has arrived; Stop once the parent has ended."""
        if (message := self._parse()) is not None:
            return message
        try:
            while arrived := self._socket.recv(_READ_BYTES):
                self._received += arrived
                if (message := self._parse()) is not None:
                    return message
        except BlockingIOError:
            return None
        except OSError:
            pass
        self._has_parent = False
        return Stop()

    def _parse(self) -> "Command | Load | None":
        if len(self._received) < HEAD.size:
            return None
        num_bytes, number = HEAD.unpack_from(self._received)
        end = HEAD.size + num_bytes
        if len(self._received) < end:
            return None
        message: Command | Load = self._hears.decode(number, bytes(self._received[HEAD.size : end]))
        del self._received[:end]
        return message

    def _sleep(self, timeout_s: float | None) -> None:
        """Wait until a message arrives, or for the time given; write meanwhile."""
        self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        self._poll.poll(None if timeout_s is None else 1e3 * timeout_s)
        if self._unsent:
            self._transmit()
            if not self._is_clogged:
                self._send_held()

    def _transmit(self) -> None:
        """Write as much as the parent takes now."""
        try:
            while self._unsent and self._has_parent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._has_parent = False
        if not self._has_parent:
            self._unsent.clear()
