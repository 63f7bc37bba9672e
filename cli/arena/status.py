"""The output of `agon up`: a live table on a terminal, plain lines elsewhere. It makes no requests.

What supervises the processes reports through a view, so an output that takes nothing (its disk is full, its reader has
gone) must not raise: what cannot be shown is left out.
"""

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.arena.child import Child, ChildState
from wire.workers import ChatForm, WorkerView

#: What is said of models without a chat template.
CHAT_FORMS: dict[ChatForm, str] = {
    "none": "a base model: it completes text, and battles and chats leave it out",
    "plain": "a base model, asked in plain text",
}

_COLOURS = {
    ChildState.READY: "green",
    ChildState.GIVEN_UP: "red",
    ChildState.BACKING_OFF: "yellow",
    ChildState.UNREADY: "yellow",
}


class StatusView(Protocol):
    """Shows the events and the state of an arena. Called from one event loop. No method raises OSError."""

    def event(self, source: str, text: str) -> None:
        """Show one event of `source`, for instance a process that became ready. Other threads call it, too."""

    def refresh(self, children: Sequence[Child], workers: Mapping[str, WorkerView], headline: str) -> None:
        """Show the present state; cheap enough to be called several times a second."""

    def close(self) -> None:
        """End the output."""


class PlainView:
    """Prints one line per event, with the seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._headline = ""

    def event(self, source: str, text: str) -> None:
        """Print the event."""
        with contextlib.suppress(OSError):
            print(f"{time.monotonic() - self._started:6.1f}s  {source}: {text}", flush=True)

    def refresh(self, children: Sequence[Child], workers: Mapping[str, WorkerView], headline: str) -> None:
        """Print the headline if it has changed."""
        if headline != self._headline:
            self._headline = headline
            self.event("arena", headline)

    def close(self) -> None:
        """Flush standard output."""
        with contextlib.suppress(OSError):
            sys.stdout.flush()


class LiveView:
    """Redraws a table in place, below a scrolling list of events. It is drawn from the event loop, not from a thread.
    At the end the table disappears and the events stay."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        with contextlib.suppress(OSError):
            self._live.start()

    def event(self, source: str, text: str) -> None:
        """Print the event above the table."""
        with contextlib.suppress(OSError):
            self._console.print(f"{time.strftime('%H:%M:%S')} {source}: {text}", markup=False, highlight=False)

    def refresh(self, children: Sequence[Child], workers: Mapping[str, WorkerView], headline: str) -> None:
        """Redraw the headline and a row for each process."""
        table = Table()
        for column in ("process", "state", "restarts", "pid", "model", "load", "tokens/s", "last death"):
            table.add_column(column, justify="right" if column in ("restarts", "pid", "tokens/s") else "left")
        for child in children:
            table.add_row(*_row(child, workers))
            if child.spec.name in ("worker", "placer"):
                for _, worker in sorted(workers.items()):
                    table.add_row(*_model_row(worker))
        with contextlib.suppress(OSError):
            self._live.update(Group(Text(headline, style="bold"), table), refresh=True)

    def close(self) -> None:
        """Remove the table."""
        with contextlib.suppress(OSError):
            self._live.stop()


def choose_view() -> StatusView:
    """A live table if standard output is a terminal, else plain lines."""
    return LiveView(Console()) if sys.stdout.isatty() else PlainView()


def _row(child: Child, workers: Mapping[str, WorkerView]) -> tuple[str | Text, ...]:
    state = Text(child.state, style=_COLOURS.get(child.state, ""))
    kind, _, model = child.spec.name.partition(" ")
    pid, restarts, death = str(child.pid or ""), str(child.num_restarts or ""), Text(_last_death(child))
    view = workers.get(model)
    load, speed = ("", "") if view is None else _load(view)
    return (kind, state, restarts, pid, Text(model), load, speed, death)


def _model_row(worker: WorkerView) -> tuple[str | Text, ...]:
    """One model of the worker process."""
    state = Text(worker.state, style="green" if worker.state == "ready" else "")
    load, speed = _load(worker)
    return ("", state, "", "", Text(worker.model), load, speed, "")


def _load(worker: WorkerView) -> tuple[str, str]:
    if worker.load is None:
        return "", ""
    return f"{worker.load.running} running, {worker.load.waiting} waiting", f"{worker.load.tokens_per_s:.0f}"


def _last_death(child: Child) -> str:
    """How the process ended, and what comes next."""
    match child.state:
        case ChildState.BACKING_OFF if child.next_start is not None:
            return f"{child.last_death}; next start in {max(0.0, child.next_start - time.monotonic()):.0f} s"
        case ChildState.GIVEN_UP:
            return f"{child.last_death}; see {child.spec.log_path.name}, then start `agon up` again"
        case _:
            return child.last_death
