"""Two arenas for all tests of this folder: one with the demo models, one with echoes for tests that break things."""

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser import find_browser
from tests.e2e.arena import UpProcess, arena
from tests.wheel import build_wheel

DEMO_MODELS = ("raven", "robin", "finch")
ECHOES = ("left", "right")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(600))
            if sys.platform != "linux":
                item.add_marker(pytest.mark.skip(reason="looks into /proc"))


@pytest.fixture(scope="package")
def wheel_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pip installs of Agon's wheel: the packages and the demo models, no repository."""
    folder = tmp_path_factory.mktemp("wheel")
    site = folder / "site"
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(site)
    return site


@pytest.fixture(scope="package")
def demo_arena(wheel_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    """`agon up` of the wheel without a model flag in an empty folder, ready. Tests must not break it."""
    folder, empty = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("empty")
    with arena(folder / "data", [], len(DEMO_MODELS), empty, PYTHONPATH=str(wheel_site)) as up:
        up.wait_ready()
        yield up


@pytest.fixture(scope="session")
def echo_flags(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags for two models that echo the prompt, slowly enough to be interrupted."""
    folder = tmp_path_factory.mktemp("echo-model")
    (folder / "config.json").write_text(json.dumps({"model_type": "echo"}))
    return ["--no-demos", "--engine", "echo", *(word for name in ECHOES for word in ("--model", f"{name}={folder}"))]


@pytest.fixture(scope="package")
def shared_echo_arena(tmp_path_factory: pytest.TempPathFactory, echo_flags: list[str]) -> Iterator[UpProcess]:
    with arena(tmp_path_factory.mktemp("echo") / "data", echo_flags, 2, AGON_ECHO_TOKENS_PER_S="20") as up:
        up.wait_ready()
        yield up


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
