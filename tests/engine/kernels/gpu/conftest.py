"""Runs Triton kernels on a CUDA device if there is one, else in Triton's interpreter.

The interpreter is chosen by an environment variable that Triton reads when it is first imported (tests/conftest.py).
"""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.kernels.gpu import old_interpreter

HAS_CUDA = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET", "0") == "0"
if not HAS_CUDA:
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if importlib.util.find_spec("triton") is not None:
        old_interpreter.mend()


def pytest_report_header() -> str:
    return f"Triton's kernels run {f'on {torch.cuda.get_device_name()}' if HAS_CUDA else 'in its interpreter'}"


class _WithoutTriton(pytest.Module):
    def collect(self) -> Iterator[pytest.Item]:
        pytest.skip("Triton has no release for this platform (it is for Linux on x86-64)", allow_module_level=True)
        yield


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if importlib.util.find_spec("triton") is None:
        return _WithoutTriton.from_parent(parent, path=module_path)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not HAS_CUDA:
        pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if HAS_CUDA else "cpu")


@pytest.fixture(autouse=True)
def _arithmetic_of_a_device() -> Iterator[None]:
    """NumPy, which the interpreter uses, warns about infinities and NaN, and warnings are errors; a device does not
    warn."""
    with np.errstate(all="ignore"):
        yield
