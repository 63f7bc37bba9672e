"""What pip installs is all that an arena needs. The demo arena of this folder runs from the wheel; see conftest.py."""

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.arena import UpProcess
from tests.e2e.conftest import DEMO_MODELS
from tests.wheel import MAX_WHEEL_BYTES, PACKAGES


def test_the_wheel_has_the_packages_and_the_demo_models_and_nothing_else(wheel_site: Path) -> None:
    [metadata] = wheel_site.glob("agon-*.dist-info")
    assert {path.name for path in wheel_site.iterdir()} == {*PACKAGES, metadata.name}
    assert {path.name for path in (wheel_site / "demo_models").iterdir()} == set(DEMO_MODELS)
    [wheel] = wheel_site.parent.glob("*.whl")
    assert wheel.stat().st_size < MAX_WHEEL_BYTES


def test_the_demo_arena_runs_from_the_wheel(demo_arena: UpProcess, wheel_site: Path) -> None:
    program = "import cli, engine; print(cli.__file__); print(engine.__file__)"
    answer = subprocess.run(
        [sys.executable, "-P", "-c", program], env=demo_arena.environment, capture_output=True, text=True, check=True
    )
    assert all(Path(line).is_relative_to(wheel_site) for line in answer.stdout.split())
    words = demo_arena.command_line("worker")
    assert all(f"{name}={wheel_site / 'demo_models' / name}" in words for name in DEMO_MODELS)
    assert os.listdir(f"/proc/{demo_arena.process.pid}/cwd") == []
