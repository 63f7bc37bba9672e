"""What importing a package loads, which the contracts of import-linter in pyproject.toml cannot see."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("controller.app", ("torch", "gradio", "transformers")),
        ("model_worker.app", ("torch", "gradio", "redis")),
        ("webui.client", ("torch", "redis", "numpy")),
        ("service_kit.app", ("torch", "redis", "numpy", "gradio", "httpx")),
        ("ratings", ("torch", "redis", "fastapi", "pydantic")),
        ("engine", ("torch", "redis", "fastapi", "pydantic", "gradio")),
    ],
)
def test_a_module_is_imported_without_the_packages_of_other_services(module: str, absent: tuple[str, ...]) -> None:
    """The heavy parts are extras: a controller's machine has no torch, a worker's no gradio and no redis."""
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); import {module}"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, f"{module} needs one of {absent}:\n{answer.stderr[-800:]}"
