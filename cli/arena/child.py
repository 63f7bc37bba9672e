"""One supervised process: start, probe, restart, stop. The supervisor calls these methods.

Each child leads its own process group, so that Ctrl-C in the terminal reaches the supervisor only. It is tethered to
the supervisor, so that even kill -9 of the supervisor leaves no process behind. Its output goes to its own log file.
"""

import asyncio
import contextlib
import fcntl
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

from cli.arena import tether
from cli.arena.restart_policy import RestartPolicy
from cli.errors import CliError
from cli.time_slices import ask_for_short_slices

_POLL_S = 0.1
_PROBE_STARTING_S = 0.25
_PROBE_READY_S = 2.0
_HUNG_S = 60.0  #: a process that was ready and gives no answer for this long is killed and started again
_LOCK_WAIT_S = 15.0
_MAX_LOG_BYTES = 8 * 2**20
_TAIL_BYTES = 8192
_TAIL_LINES = 12
_QUOTED_CHARS = 160  #: of the log's last line, in the report of a death


class ChildState(StrEnum):
    """States of a child process, as the status table shows them."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "not ready"  #: it was ready before, and answers that it is not ready now
    BACKING_OFF = "restarting"
    GIVEN_UP = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


class ProbeResult(StrEnum):
    """What a probe of a process found."""

    READY = "ready"
    ALIVE = "alive"  #: it answers, but is not ready
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to run one process. `probe` must return within a few seconds in any case."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log_path: Path
    probe: Callable[[], Awaitable[ProbeResult]]
    stop_timeout_s: float
    death_signal: signal.Signals = signal.SIGKILL  #: sent by the kernel when the supervisor dies
    lock_path: Path | None = None  #: a file that the process inherits locked, so that it runs only once
    before_start: Callable[[], None] | None = None  #: called in a thread: it may take minutes
    after_end: Callable[[], None] | None = None  #: clears up what the process group has left; takes no time
    final_exit_codes: frozenset[int] = frozenset()  #: with these another start would fail in the same way


class Child:
    """Owns the process of one spec; only `run` starts it. Used by one event loop."""

    def __init__(
        self,
        spec: ChildSpec,
        report: Callable[[str, str], None],
        policy: RestartPolicy,
        *,
        max_first_deaths: int | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """max_first_deaths: it is given up after so many deaths before it was ready for the first time; None: never.
        on_change: called after every change of the state."""
        self.spec = spec
        self._state = ChildState.WAITING
        self.num_restarts = 0
        self.last_death = ""  #: how it ended the last time; empty before the first death
        self.last_words = ""  #: the end of its log at the last death
        self.next_start: float | None = None  #: time.monotonic() of the next start while it is backing off
        self._report = report
        self._policy = policy
        self._max_first_deaths = max_first_deaths
        self._on_change = on_change
        self._was_ready = False
        self._process: subprocess.Popen[bytes] | None = None
        self._ready_at: float | None = None
        self._log_start = 0
        self._stop_requested = asyncio.Event()
        self._settled = asyncio.Event()

    @property
    def state(self) -> ChildState:
        """The present state. Setting it wakes `wait_ready` in the states that end the wait."""
        return self._state

    @state.setter
    def state(self, state: ChildState) -> None:
        """Set by the child itself, and by Supervisor.kill."""
        self._state = state
        if state in (ChildState.READY, ChildState.GIVEN_UP, ChildState.STOPPED):
            self._settled.set()
        else:
            self._settled.clear()
        self._on_change()

    @property
    def pid(self) -> int | None:
        """Process id of the last start; None before the first."""
        return self._process.pid if self._process is not None else None

    async def run(self) -> None:
        """Keep the process alive until `stop`. It is given up only if it says by its exit code that another start would
        fail in the same way, or if it was never ready and `max_first_deaths` is reached."""
        while not self._stop_requested.is_set():
            try:
                await self._start()
                exit_code = await self._watch()
                self.last_death, self.last_words = _describe_exit(exit_code), self._tail()
            except (OSError, CliError) as error:
                exit_code, self.last_death, self.last_words = 1, "could not be started", str(error)
                self._end_group()
            except Exception as error:  # a defect of ours must not leave a process without its supervisor
                exit_code, self.last_death = 1, "could not be watched"
                self.last_words = f"{type(error).__name__}: {error}"
                self._end_group()
            if self._stop_requested.is_set():
                return
            if exit_code in self.spec.final_exit_codes or self._has_failed_to_begin():
                self.state = ChildState.GIVEN_UP
                self._report(self.spec.name, self._farewell())
                return
            await self._back_off()

    async def _back_off(self) -> None:
        ready_s = time.monotonic() - self._ready_at if self._ready_at is not None else 0.0
        delay_s = self._policy.delay_after_death(ready_s)
        self.num_restarts += 1
        self.next_start = time.monotonic() + delay_s
        self.state = ChildState.BACKING_OFF
        text = f"{self.last_death}{self._quoted()}; starts again in {delay_s:.1f} s (log: {self.spec.log_path})"
        self._report(self.spec.name, text)
        await self._sleep(delay_s)
        self.next_start = None

    def _has_failed_to_begin(self) -> bool:
        deaths = self.num_restarts + 1
        return self._max_first_deaths is not None and not self._was_ready and deaths >= self._max_first_deaths

    async def wait_ready(self) -> bool:
        """Wait until the process is ready (True), or given up or stopped (False)."""
        await self._settled.wait()
        return self.state is ChildState.READY

    async def stop(self) -> None:
        """Send SIGTERM, wait for the time in the spec, then kill the rest of the process group."""
        self._stop_requested.set()
        process = self._process
        if process is not None and process.poll() is None:
            self.state = ChildState.STOPPING
            process.send_signal(signal.SIGTERM)
            if not await _ended_within(process, self.spec.stop_timeout_s):
                self._report(self.spec.name, f"did not stop within {self.spec.stop_timeout_s:.0f} s; killed")
        self.kill()
        if self.state is not ChildState.GIVEN_UP:
            self.state = ChildState.STOPPED

    def kill(self) -> None:
        """Kill the whole process group now; does nothing if it has ended."""
        self._stop_requested.set()
        self._end_group()

    def trim_log(self) -> None:
        """Bound the log: move it to .log.1 when it is too large. The child appends, so truncation is safe."""
        path = self.spec.log_path
        if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
            older = path.with_suffix(".log.1")
            try:
                older.write_bytes(path.read_bytes())
            except OSError:  # the disk is full: a log is worth less than room for votes
                older.unlink(missing_ok=True)
            os.truncate(path, 0)
            self._log_start = 0

    async def _start(self) -> None:
        self._ready_at = None
        self.state = ChildState.STARTING
        if self.spec.lock_path is None:
            await self._prepare()
            self._spawn(())
            return
        with _open_to_append(self.spec.lock_path) as lock:
            await self._take(lock)
            await self._prepare()
            self._spawn((lock.fileno(),))  # now only the child holds the lock

    async def _prepare(self) -> None:
        if self.spec.before_start is not None:
            await asyncio.to_thread(self.spec.before_start)
            if self._stop_requested.is_set():
                raise CliError("it was stopped before it had started")

    def _spawn(self, inherited: tuple[int, ...]) -> None:
        self.trim_log()
        with _open_to_append(self.spec.log_path) as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                _tethered(self.spec),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(self.spec.environment),
                start_new_session=True,
                pass_fds=inherited,
            )
        ask_for_short_slices(self._process.pid)

    async def _take(self, lock: IO[bytes]) -> None:
        """Take the lock file. A predecessor that is ending may hold it for a moment; raises CliError after
        _LOCK_WAIT_S."""
        deadline = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline or self._stop_requested.is_set():
                    raise CliError(f"another process still holds {self.spec.lock_path}") from None
            await asyncio.sleep(_POLL_S)

    async def _watch(self) -> int:
        """Probe until the process ends; returns its exit code."""
        process = self._process
        assert process is not None
        last_answer = time.monotonic()
        next_probe = 0.0
        while (exit_code := process.poll()) is None:
            now = time.monotonic()
            if now >= next_probe and not self._stop_requested.is_set():
                result = await self.spec.probe()
                if process.poll() is None and not self._stop_requested.is_set():
                    self._take_probe(result)
                last_answer = now if result is not ProbeResult.SILENT else last_answer
                if self._ready_at is not None and now - last_answer > _HUNG_S:
                    self._report(self.spec.name, f"gave no answer for {_HUNG_S:.0f} s; killed")
                    self._kill_group(process)
                    last_answer = math.inf  # it is killed once, however long its end takes
                is_settled = result is ProbeResult.READY
                next_probe = time.monotonic() + (_PROBE_READY_S if is_settled else _PROBE_STARTING_S)
            await asyncio.sleep(_POLL_S)
        self._kill_group(process)
        self._clear_up()
        return exit_code

    def _take_probe(self, result: ProbeResult) -> None:
        if result is ProbeResult.READY:
            self._was_ready = True
            if self._ready_at is None:
                self._ready_at = time.monotonic()
            if self.state is not ChildState.READY:
                self._report(self.spec.name, "ready")
            self.state = ChildState.READY
        elif self.state is ChildState.READY and result is ProbeResult.ALIVE:
            self.state = ChildState.UNREADY

    def _farewell(self) -> str:
        quoted = "\n".join(f"    {line}" for line in self.last_words.splitlines())
        times = f", after {self.num_restarts + 1} quick deaths" if self.num_restarts else ""
        return (
            f"{self.last_death} and is not started again{times}: correct the cause, then start `agon up` again. "
            f"The end of {self.spec.log_path}:\n{quoted}"
        )

    def _quoted(self) -> str:
        if _has_no_room(self.spec.log_path):  # then its log does not say so
            return " (the disk is full)"
        last = self.last_words.rpartition("\n")[2].strip()
        return f" ({last[:_QUOTED_CHARS]})" if last else ""

    def _tail(self) -> str:
        """The last lines that this start wrote."""
        try:
            with open(self.spec.log_path, "rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(min(self._log_start, size), size - _TAIL_BYTES))
                return "\n".join(log.read().decode("utf-8", errors="replace").splitlines()[-_TAIL_LINES:])
        except OSError:
            return ""

    def _end_group(self) -> None:
        """Kill what the last start may have left; return when its process has ended."""
        if self._process is not None:
            self._kill_group(self._process)
            self._process.wait()
            self._clear_up()

    def _clear_up(self) -> None:
        if self.spec.after_end is not None:
            self.spec.after_end()

    @staticmethod
    def _kill_group(process: subprocess.Popen[bytes]) -> None:
        """Kill the process and those that it has started, such as a compiler."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    async def _sleep(self, duration_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await self._stop_requested.wait()


def _tethered(spec: ChildSpec) -> list[str]:
    """-I: the tether must not import from the current directory."""
    tie = [sys.executable, "-I", str(Path(tether.__file__)), str(os.getpid()), str(int(spec.death_signal))]
    return [*tie, *spec.command]


def _open_to_append(path: Path) -> IO[bytes]:
    return open(path, "ab")


def _has_no_room(path: Path) -> bool:
    try:
        disk = os.statvfs(path)
    except OSError:
        return False
    return disk.f_bavail == 0 < disk.f_blocks


async def _ended_within(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - a process's end is no asyncio event
        await asyncio.sleep(_POLL_S / 2)
    return process.poll() is not None


def _describe_exit(exit_code: int) -> str:
    if exit_code < 0:
        try:
            return f"was killed by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"was killed by signal {-exit_code}"
    return f"ended with exit code {exit_code}"
