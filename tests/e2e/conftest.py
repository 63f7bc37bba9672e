"""Two arenas for all tests of this folder: one with the demo models, one with echoes for tests that break things."""

import json
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser import find_browser
from tests.e2e.arena import UpProcess, arena
from tests.wheel import build_wheel

DEMO_MODELS = ("raven", "robin", "finch", "wren")
ECHOES = ("left", "right")

_HERE = Path(__file__).parent
_running = ExitStack()  # the shared arenas: an idle one still takes some percent of a core from all tests after it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if sys.platform != "linux":
                item.add_marker(pytest.mark.skip(reason="looks into /proc"))


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or _HERE not in nextitem.path.parents:
        _running.close()


@pytest.fixture(scope="session")
def running() -> Iterator[ExitStack]:
    """What ends with the last test of this folder, or with a run that is stopped in it."""
    with _running:
        yield _running


@pytest.fixture(scope="session")
def wheel_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pip installs of Agon's wheel: the packages and the demo models, no repository."""
    folder = tmp_path_factory.mktemp("wheel")
    site = folder / "site"
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(site)
    return site


@pytest.fixture(scope="session")
def demo_arena(running: ExitStack, wheel_site: Path, tmp_path_factory: pytest.TempPathFactory) -> UpProcess:
    """`agon up` of the wheel without a model flag in an empty folder, ready. Tests must not break it."""
    folder, empty = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("empty")
    up = running.enter_context(arena(folder / "data", [], len(DEMO_MODELS), empty, PYTHONPATH=str(wheel_site)))
    up.wait_ready()
    return up


@pytest.fixture(scope="session")
def echo_flags(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags for two models that echo the prompt, slowly enough to be interrupted."""
    folder = tmp_path_factory.mktemp("echo-model")
    (folder / "config.json").write_text(json.dumps({"model_type": "echo"}))
    return ["--no-demos", "--engine", "echo", *(word for name in ECHOES for word in ("--model", f"{name}={folder}"))]


@pytest.fixture(scope="session")
def shared_echo_arena(running: ExitStack, tmp_path_factory: pytest.TempPathFactory, echo_flags: list[str]) -> UpProcess:
    data_dir = tmp_path_factory.mktemp("echo") / "data"
    up = running.enter_context(arena(data_dir, echo_flags, 2, AGON_ECHO_TOKENS_PER_S="20"))
    up.wait_ready()
    return up


@pytest.fixture
def echo_arena(shared_echo_arena: UpProcess) -> UpProcess:
    """The shared echo arena, with every worker ready again, whatever the test before has killed."""
    shared_echo_arena.wait_workers(*ECHOES)
    return shared_echo_arena


@pytest.fixture
def client(echo_arena: UpProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=echo_arena.controller_url, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
def admin_headers(echo_arena: UpProcess) -> dict[str, str]:
    secrets: dict[str, Any] = json.loads((echo_arena.data_dir / "secrets.json").read_text())
    return {"Authorization": f"Bearer {secrets['admin_token']}"}


@pytest.fixture(scope="session")
def chromium() -> str:
    return find_browser()
