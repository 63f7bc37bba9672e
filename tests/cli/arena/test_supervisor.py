"""The order in which groups of processes start and stop."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cli.arena.child import ChildSpec, ChildState
from cli.arena.supervisor import Supervisor
from cli.errors import CliError

MakeSpec = Callable[..., ChildSpec]
Until = Callable[..., Awaitable[None]]

#: On SIGTERM the child writes its name into a common file and exits.
POLITE = "signal.signal(signal.SIGTERM, lambda *_: (open({path!r}, 'a').write({name!r} + ' '), sys.exit(0)))"


def polite(make_spec: MakeSpec, name: str, path: Path) -> ChildSpec:
    spec = make_spec(name)
    program = spec.command[-1].replace("; open(", f"; {POLITE.format(path=str(path), name=name)}; open(", 1)
    return make_spec(name) if program == spec.command[-1] else _with_program(spec, program)


def _with_program(spec: ChildSpec, program: str) -> ChildSpec:
    return ChildSpec(
        name=spec.name,
        command=(sys.executable, "-c", program),
        environment=spec.environment,
        log_path=spec.log_path,
        probe=spec.probe,
        stop_timeout_s=spec.stop_timeout_s,
        final_exit_codes=spec.final_exit_codes,
    )


async def test_groups_stop_in_the_reverse_order_of_their_start(make_spec: MakeSpec, news: Any, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    stages = [[polite(make_spec, name, ended)] for name in ("store", "controller", "worker", "webui")]
    supervisor = Supervisor(stages, news)
    await supervisor.start()
    assert all([await child.wait_ready() for child in supervisor.children])
    await supervisor.stop()
    assert ended.read_text().split() == ["webui", "worker", "controller", "store"]
    assert {child.state for child in supervisor.children} == {ChildState.STOPPED}


async def test_nothing_starts_before_the_store_answers(make_spec: MakeSpec, news: Any) -> None:
    silent = _with_program(make_spec("store", final_exit_codes=frozenset({1})), "raise SystemExit('no store')")
    supervisor = Supervisor([[silent], [make_spec("controller")]], news)
    with pytest.raises(CliError, match="store did not start"):
        await supervisor.start()
    assert supervisor.children[1].state is ChildState.WAITING
    await supervisor.stop()


async def test_one_that_fails_for_good_leaves_the_others_running(make_spec: MakeSpec, news: Any, until: Until) -> None:
    bad_spec = make_spec("bad", "sys.exit(3)", final_exit_codes=frozenset({3}))
    supervisor = Supervisor([[make_spec("store")], [bad_spec, make_spec("good")]], news)
    await supervisor.start()
    bad, good = supervisor.children[1:]
    assert await good.wait_ready()
    await until(lambda: bad.state is ChildState.GIVEN_UP)
    assert good.state is ChildState.READY
    assert not supervisor.everything_failed
    await supervisor.stop()
    assert bad.state is ChildState.GIVEN_UP


async def test_kill_ends_even_what_ignores_signals_at_once(
    make_spec: MakeSpec, news: Any, is_alive: Callable[[int], bool], until: Until
) -> None:
    deaf = make_spec("deaf", "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", stop_timeout_s=60.0)
    supervisor = Supervisor([[deaf]], news)
    await supervisor.start()
    [child] = supervisor.children
    pid = child.pid
    assert pid is not None
    stopping = asyncio.create_task(supervisor.stop())
    await until(lambda: child.state is ChildState.STOPPING)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    await supervisor.kill()
    assert not is_alive(pid)
