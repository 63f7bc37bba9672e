"""The output of `agon up` on a terminal and elsewhere."""

import errno
import io
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from cli.arena.child import Child, ChildSpec, ChildState
from cli.arena.restart_policy import RestartPolicy
from cli.arena.status import LiveView, PlainView, choose_view
from wire.workers import Capacity, Load, ModelCard, WorkerView

MakeSpec = Callable[..., ChildSpec]


@pytest.fixture
def child(make_spec: MakeSpec, news: Any) -> Child:
    child = Child(make_spec("worker finch"), news, RestartPolicy())
    child.state = ChildState.READY
    child.num_restarts = 2
    return child


def worker_view() -> WorkerView:
    card = ModelCard(
        name="finch", revision="r", architecture="gpt2", num_parameters=1, dtype="float32", context_length=64
    )
    return WorkerView(
        worker_id="w",
        model="finch",
        state="ready",
        in_flight=1,
        card=card,
        capacity=Capacity(max_running=1, max_queued=1, kv_tokens=1),
        load=Load(running=3, waiting=1, tokens_per_s=123.4),
        last_heartbeat_age_s=0.1,
    )


def test_the_table_shows_state_model_load_and_speed_also_after_an_event(child: Child) -> None:
    screen = io.StringIO()
    view = LiveView(Console(file=screen, width=110, force_terminal=True, color_system=None))
    view.refresh([child], {}, "waiting for worker finch")
    view.event("worker finch", "[not] a style")
    screen.truncate(0)
    view.refresh([child], {"finch": worker_view()}, "The arena is ready: http://127.0.0.1:7860")
    shown = screen.getvalue()
    view.close()
    assert "The arena is ready: http://127.0.0.1:7860" in shown
    assert "ready" in shown
    assert "2" in shown
    assert "3 running, 1 waiting" in shown
    assert "123" in shown


def shown_rows(child: Child) -> str:
    screen = io.StringIO()
    view = LiveView(Console(file=screen, width=160, force_terminal=True, color_system=None))
    view.refresh([child], {}, "waiting")
    view.close()
    return screen.getvalue()


def test_a_process_that_died_shows_why_how_often_and_when_it_starts_again(child: Child) -> None:
    child.num_restarts = 17
    child.last_death = "was killed by SIGKILL"
    child.next_start = time.monotonic() + 12.4
    child.state = ChildState.BACKING_OFF
    shown = shown_rows(child)
    assert "restarting" in shown
    assert "17" in shown
    assert "was killed by SIGKILL; next start in 12 s" in shown


def test_a_process_that_cannot_start_says_how_to_go_on(child: Child) -> None:
    child.last_death = "ended with exit code 3"
    child.state = ChildState.GIVEN_UP
    assert "ended with exit code 3; see worker finch.log, then start `agon up` again" in shown_rows(child)


def test_an_event_is_shown_as_it_is(child: Child) -> None:
    screen = io.StringIO()
    view = LiveView(Console(file=screen, width=110, force_terminal=True, color_system=None))
    view.event("worker finch", "[not] a style")
    view.close()
    assert "worker finch: [not] a style" in screen.getvalue()


class FullDisk(io.StringIO):
    """What standard output is when it goes to a file and the disk is full."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_output_that_takes_nothing_stops_nothing(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """What supervises the processes reports through the view: an error would end it."""
    monkeypatch.setattr("sys.stdout", FullDisk())
    for view in (PlainView(), LiveView(Console(file=FullDisk(), force_terminal=True))):
        view.event("store", "was killed by SIGKILL; starts again in 0.2 s")
        view.refresh([child], {}, "waiting for store")
        view.close()


def test_without_a_terminal_each_news_is_one_line_and_told_once(
    child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    view = choose_view()
    assert isinstance(view, PlainView)
    for _ in range(3):
        view.refresh([child], {}, "waiting for worker finch")
    view.event("store", "ready")
    view.close()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("s  ", 1)[1] for line in lines] == ["arena: waiting for worker finch", "store: ready"]
