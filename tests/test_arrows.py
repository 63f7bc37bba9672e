"""The dependency arrows of ARCHITECTURE.md, as import-linter contracts in pyproject.toml."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_arrow_points_down() -> None:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout


def test_a_service_may_be_imported_without_the_packages_of_another() -> None:
    """The heavy parts are extras: a controller's machine has no torch, a worker's no gradio and no redis."""
    for package, absent in (
        ("controller.app", ("torch", "gradio", "transformers")),
        ("model_worker.app", ("torch", "gradio", "redis")),
        ("webui.client", ("torch", "redis", "numpy")),
        ("service_kit.app", ("torch", "redis", "numpy", "gradio", "httpx")),
        ("ratings", ("torch", "redis", "fastapi", "pydantic")),
        ("engine", ("torch", "redis", "fastapi", "pydantic", "gradio")),
    ):
        code = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); import {package}"
        answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, f"{package} needs one of {absent}:\n{answer.stderr[-800:]}"
