"""What `agon up` shows: a live table on a terminal, plain lines elsewhere. Draws what it is given, asks nobody."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.arena.child import Child, ChildState
from wire.workers import WorkerView

_COLOURS = {
    ChildState.READY: "green",
    ChildState.GIVEN_UP: "red",
    ChildState.BACKING_OFF: "yellow",
    ChildState.UNREADY: "yellow",
}


class StatusView(Protocol):
    """Where the supervisor's news go. `refresh` may be called often."""

    def event(self, source: str, text: str) -> None: ...

    def refresh(self, children: Sequence[Child], workers: Mapping[str, WorkerView], headline: str) -> None: ...

    def close(self) -> None: ...


class PlainView:
    """One line per event, with the seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._headline = ""

    def event(self, source: str, text: str) -> None:
        print(f"{time.monotonic() - self._started:6.1f}s  {source}: {text}", flush=True)

    def refresh(self, children: Sequence[Child], workers: Mapping[str, WorkerView], headline: str) -> None:
        if headline != self._headline:
            self._headline = headline
            self.event("arena", headline)

    def close(self) -> None:
        sys.stdout.flush()


class LiveView:
    """A table that is redrawn in place, under a scrolling list of events. Drawn from our loop, not from a thread;
    it disappears at the end, the events stay."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def event(self, source: str, text: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {source}: {text}", markup=False, highlight=False)

    def refresh(self, children: Sequence[Child], workers: Mapping[str, WorkerView], headline: str) -> None:
        table = Table()
        for column in ("process", "state", "pid", "model", "load", "tokens/s"):
            table.add_column(column, justify="right" if column in ("pid", "tokens/s") else "left")
        for child in children:
            table.add_row(*_row(child, workers))
        self._live.update(Group(Text(headline, style="bold"), table), refresh=True)

    def close(self) -> None:
        self._live.stop()


def choose_view() -> StatusView:
    return LiveView(Console()) if sys.stdout.isatty() else PlainView()


def _row(child: Child, workers: Mapping[str, WorkerView]) -> tuple[str | Text, ...]:
    restarts = f" ({child.num_restarts}x)" if child.num_restarts else ""
    state = Text(child.state + restarts, style=_COLOURS.get(child.state, ""))
    kind, _, model = child.spec.name.partition(" ")
    pid = str(child.pid or "")
    view = workers.get(model)
    if view is None:
        return (kind, state, pid, Text(model), "", "")
    load = f"{view.load.running} running, {view.load.waiting} waiting"
    return (kind, state, pid, Text(model), load, f"{view.load.tokens_per_s:.0f}")
