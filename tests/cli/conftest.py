"""Fakes for the supervisor's tests: small real processes, and a real store."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cli.arena.child import ChildSpec, ProbeResult
from cli.arena.restart_policy import RestartPolicy


class News:
    """Collects what the supervisor reports."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, source: str, text: str) -> None:
        self.lines.append(f"{source}: {text}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture
def news() -> News:
    return News()


@pytest.fixture
def hasty() -> RestartPolicy:
    """The real policy with short delays."""
    return RestartPolicy(first_delay_s=0.05, max_delay_s=0.1)


MakeSpec = Callable[..., ChildSpec]


@pytest.fixture
def make_spec(tmp_path: Path) -> MakeSpec:
    """Makes specs of children that create the file `<name>.ready`, which their probe checks, and then run `code`."""

    def make(name: str, code: str = "time.sleep(60)", stop_timeout_s: float = 30.0, **more: object) -> ChildSpec:
        ready = tmp_path / f"{name}.ready"
        program = f"import os, signal, sys, time; open({str(ready)!r}, 'w').write(str(os.getpid())); {code}"

        async def probe() -> ProbeResult:
            return ProbeResult.READY if ready.exists() else ProbeResult.SILENT

        return ChildSpec(
            name=name,
            command=(sys.executable, "-c", program),
            environment=dict(os.environ),
            log_path=tmp_path / f"{name}.log",
            probe=probe,
            stop_timeout_s=stop_timeout_s,
            **more,  # type: ignore[arg-type]
        )

    return make


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)


Until = Callable[..., Awaitable[None]]


@pytest.fixture(name="until")
def until_fixture() -> Until:
    return until


def is_alive(pid: int) -> bool:
    """A zombie counts as dead."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(name="is_alive")
def is_alive_fixture() -> Callable[[int], bool]:
    return is_alive


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@pytest.fixture(name="kill")
def kill_fixture() -> Callable[[int | None], None]:
    return kill
