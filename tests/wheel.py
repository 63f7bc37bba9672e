"""Builds Agon's wheel from a copy of the source, so that no build folder is left in the tree."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("wire", "ratings", "service_kit", "engine", "controller", "model_worker", "webui", "cli", "demo_models")
MAX_WHEEL_BYTES = 24 * 2**20  #: the demo models are 17 MiB of it


def build_wheel(folder: Path) -> Path:
    """Build the wheel into `folder` with the setuptools that is installed, and return its path."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True)
    [wheel] = folder.glob("*.whl")
    return wheel
