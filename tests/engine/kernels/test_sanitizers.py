"""Runs the operator tests again with a library built with the address and undefined-behaviour sanitizers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.kernels.cpu.build import find_compiler
from tests.engine.kernels.libraries import SANITIZE

ROOT = Path(__file__).parents[3]
TESTS = (
    "tests/engine/kernels/test_cpp_operators.py",
    "tests/engine/kernels/test_cpp_draw.py",
    "tests/engine/attention/test_cpp_backend.py",
    "tests/engine/layers/test_decoder.py",
)


#: Runs of their own: together they would take longer than a test may.
RUNS = {
    "operators": TESTS,
    "products and states": (
        "tests/engine/kernels/test_quantised_products.py",
        "tests/engine/kernels/test_cpp_state_kernels.py",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_operators_read_and_write_only_what_is_theirs(name: str) -> None:
    compiler = find_compiler()
    assert compiler is not None
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {
        **os.environ,
        SANITIZE: "1",
        "LD_PRELOAD": runtime.stdout.strip(),  # Python was built without the sanitizers
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself leaks at exit
        "PYTHONMALLOC": "malloc",  # so that small allocations are checked too
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "not torch", *RUNS[name]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout


def test_a_write_beyond_the_end_would_be_seen() -> None:
    """Checks that the test above can fail."""
    compiler = find_compiler()
    assert compiler is not None
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    program = (
        "import torch\n"
        "from tests.engine.kernels.libraries import library\n"
        "x = torch.zeros(1, 40)\n"
        "library().function('activation', torch.float32)(2, x.data_ptr(), x.data_ptr(), 1, 4096, 1)\n"
    )
    environment = {
        **os.environ,
        SANITIZE: "1",
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr
