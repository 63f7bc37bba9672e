"""One supervised process: restarts, probes, stopping, log files, and the tether to its parent."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.arena import tether
from cli.arena.child import Child, ChildSpec, ChildState, ProbeResult
from cli.arena.restart_policy import RestartPolicy

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

MakeSpec = Callable[..., ChildSpec]
Until = Callable[..., Awaitable[None]]
IsAlive = Callable[[int], bool]


async def test_a_killed_process_is_started_again(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, kill: Callable[[int | None], None], until: Until
) -> None:
    ended: list[str] = []
    child = Child(replace(make_spec("one"), after_end=lambda: ended.append("cleared up")), news, hasty)
    running = asyncio.create_task(child.run())
    assert await child.wait_ready()
    first = child.pid
    assert not ended
    kill(first)
    await until(lambda: child.pid != first and child.state is ChildState.READY)
    assert child.num_restarts == 1
    assert "was killed by SIGKILL; starts again in" in news.text
    assert len(ended) == 1
    await child.stop()
    assert len(ended) == 2
    await running


async def test_one_that_gives_no_answer_is_killed_with_one_line_however_long_its_end_takes(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.arena.child._HUNG_S", 0.0)
    monkeypatch.setattr("cli.arena.child._PROBE_READY_S", 0.01)
    monkeypatch.setattr("cli.arena.child._PROBE_STARTING_S", 0.01)
    num_probes = 0

    async def answer_once() -> ProbeResult:
        nonlocal num_probes
        num_probes += 1
        return ProbeResult.READY if num_probes == 1 else ProbeResult.SILENT

    monkeypatch.setattr(Child, "_kill_group", staticmethod(lambda process: None))  # its end takes long
    child = Child(replace(make_spec("one"), probe=answer_once), news, hasty)
    running = asyncio.create_task(child.run())
    await until(lambda: num_probes > 6)
    assert sum("gave no answer" in line for line in news.lines) == 1
    monkeypatch.undo()
    await child.stop()
    await running


async def test_one_that_keeps_dying_is_started_again_for_ever(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, until: Until
) -> None:
    child = Child(make_spec("one", "sys.exit('no room on the disk')"), news, hasty)
    running = asyncio.create_task(child.run())
    await until(lambda: child.num_restarts >= 7)
    await until(lambda: child.state is ChildState.BACKING_OFF)
    assert (child.last_death, child.last_words) == ("ended with exit code 1", "no room on the disk")
    assert child.next_start is not None
    assert "ended with exit code 1 (no room on the disk); starts again in" in news.lines[-1]
    await child.stop()
    await running


async def test_what_comes_before_a_start_holds_nothing_else_up(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, until: Until
) -> None:
    """Mending a large store takes minutes, in which other processes die and Ctrl-C is pressed."""
    has_begun, may_end = threading.Event(), threading.Event()
    was_ended_by_the_loop: list[bool] = []

    def mend() -> None:
        has_begun.set()
        was_ended_by_the_loop.append(may_end.wait(30))

    child = Child(replace(make_spec("one"), before_start=mend), news, hasty)
    running = asyncio.create_task(child.run())
    await until(has_begun.is_set)
    assert child.pid is None
    may_end.set()
    await until(lambda: child.pid is not None)
    assert was_ended_by_the_loop == [True]
    await child.stop()
    await running


async def test_one_that_is_stopped_before_its_start_does_not_start(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, until: Until
) -> None:
    has_begun, may_start = threading.Event(), threading.Event()

    def before_start() -> None:
        has_begun.set()
        may_start.wait(30)

    child = Child(replace(make_spec("one"), before_start=before_start), news, hasty)
    running = asyncio.create_task(child.run())
    await until(has_begun.is_set)
    await child.stop()
    may_start.set()
    await running
    assert child.pid is None
    assert child.state is ChildState.STOPPED


async def test_a_defect_of_ours_leaves_no_process_without_its_supervisor(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, until: Until, is_alive: IsAlive
) -> None:
    """A probe raises what no probe may; the process is ended and started again, so that none runs twice."""
    probes = 0
    spec = make_spec("one")

    async def probe() -> ProbeResult:
        nonlocal probes
        probes += 1
        if probes == 2:
            raise RuntimeError("the handler is closed")
        return await spec.probe()

    child = Child(replace(spec, probe=probe), news, hasty)
    running = asyncio.create_task(child.run())
    await until(lambda: child.pid is not None)
    first = child.pid
    assert first is not None
    await until(lambda: child.pid != first and child.state is ChildState.READY)
    assert not is_alive(first)
    assert "RuntimeError: the handler is closed" in news.text
    await child.stop()
    await running


async def test_one_that_was_never_ready_is_given_up_where_that_is_asked_for(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy
) -> None:
    spec = replace(make_spec("one", "sys.exit('no memory for the weights')"), probe=_is_silent)
    child = Child(spec, news, hasty, max_first_deaths=3)
    await child.run()
    assert child.state is ChildState.GIVEN_UP
    assert child.last_words == "no memory for the weights"
    assert "ended with exit code 1 and is not started again, after 3 quick deaths: correct the cause" in news.lines[-1]
    assert "no memory for the weights" in news.lines[-1]
    assert not await child.wait_ready()


async def _is_silent() -> ProbeResult:
    return ProbeResult.SILENT


async def test_one_that_was_ready_once_is_not_given_up(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, kill: Callable[[int | None], None], until: Until
) -> None:
    child = Child(make_spec("one"), news, hasty, max_first_deaths=1)
    running = asyncio.create_task(child.run())
    assert await child.wait_ready()
    for _ in range(2):
        pid = child.pid
        kill(pid)
        await until(lambda pid=pid: child.pid != pid and child.state is ChildState.READY)
    await child.stop()
    await running


async def test_one_that_says_it_can_never_start_is_not_tried_again(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy
) -> None:
    child = Child(make_spec("one", "sys.exit(3)", final_exit_codes=frozenset({3})), news, hasty)
    await child.run()
    assert child.state is ChildState.GIVEN_UP
    assert child.num_restarts == 0


async def test_a_program_that_does_not_exist_is_given_up_too(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, tmp_path: Path
) -> None:
    spec = make_spec("one")
    missing = ChildSpec(
        name="one",
        command=(str(tmp_path / "missing"),),
        environment=spec.environment,
        log_path=spec.log_path,
        probe=spec.probe,
        stop_timeout_s=1.0,
    )
    child = Child(missing, news, hasty, max_first_deaths=3)
    await child.run()
    assert child.state is ChildState.GIVEN_UP
    assert "No such file" in child.last_words


async def test_stop_lets_the_process_finish_its_work(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, tmp_path: Path, until: Until
) -> None:
    done, listens = tmp_path / "done", tmp_path / "listens"
    code = (
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(done)!r}, 'w').close(), sys.exit(0))); "
        f"open({str(listens)!r}, 'w').close(); time.sleep(60)"
    )
    child = Child(make_spec("one", code), news, hasty)
    running = asyncio.create_task(child.run())
    await until(listens.exists)
    await child.stop()
    await running
    assert done.exists()
    assert child.state is ChildState.STOPPED
    assert child.num_restarts == 0


async def test_stop_kills_what_does_not_end_in_time_with_all_it_started(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, tmp_path: Path, until: Until, is_alive: IsAlive
) -> None:
    grandchild = tmp_path / "grandchild"
    code = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); import subprocess; "
        f"p = subprocess.Popen(['sleep', '60']); open({str(grandchild)!r}, 'w').write(str(p.pid)); time.sleep(60)"
    )
    child = Child(make_spec("one", code, stop_timeout_s=0.3), news, hasty)
    running = asyncio.create_task(child.run())
    await until(lambda: grandchild.exists() and grandchild.read_text() != "")
    await child.stop()
    await running
    assert "did not stop within 0 s; killed" in news.text
    await until(lambda: not is_alive(int(grandchild.read_text())))


async def test_an_inherited_lock_lives_exactly_as_long_as_the_process(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, tmp_path: Path
) -> None:
    lock_path = tmp_path / "lock"
    child = Child(make_spec("one", lock_path=lock_path), news, hasty)
    running = asyncio.create_task(child.run())
    assert await child.wait_ready()
    with open(lock_path, "ab") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await child.stop()
        await running
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_a_long_log_is_cut_and_its_older_part_kept(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.arena.child._MAX_LOG_BYTES", 1000)
    spec = make_spec("one")
    spec.log_path.write_bytes(b"x" * 1001)
    Child(spec, news, hasty).trim_log()
    assert spec.log_path.stat().st_size == 0
    assert spec.log_path.with_suffix(".log.1").stat().st_size == 1001


async def test_where_the_disk_is_full_the_log_is_cut_without_a_copy(
    make_spec: MakeSpec, news: Any, hasty: RestartPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.arena.child._MAX_LOG_BYTES", 1000)
    spec = make_spec("one")
    spec.log_path.write_bytes(b"x" * 1001)
    spec.log_path.with_suffix(".log.1").symlink_to("/dev/full")
    Child(spec, news, hasty).trim_log()
    assert spec.log_path.stat().st_size == 0
    assert not spec.log_path.with_suffix(".log.1").exists()


def test_a_tethered_process_dies_with_its_parent(tmp_path: Path, is_alive: IsAlive) -> None:
    """The parent is killed hard, as the out-of-memory killer would; it can clean up nothing."""
    parent_code = (
        "import os, subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-I', sys.argv[1], str(os.getpid()), '9', '/bin/sleep', '60'])\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", parent_code, str(tether.__file__)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        while Path(f"/proc/{pid}/comm").read_text().strip() != "sleep":
            pass
        parent.send_signal(signal.SIGKILL)
    deadline = os.times().elapsed + 60
    while is_alive(pid) and os.times().elapsed < deadline:
        pass
    assert not is_alive(pid)


def test_a_tether_whose_parent_is_already_gone_starts_nothing() -> None:
    answer = subprocess.run(
        [sys.executable, "-I", str(tether.__file__), "1", "9", "/bin/echo", "started"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stdout == ""
