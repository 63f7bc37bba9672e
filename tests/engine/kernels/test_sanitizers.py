"""Runs the operator tests again with a library built with the address and undefined-behaviour sanitizers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.kernels.cpu.build import find_compiler
from tests.engine.kernels.libraries import SANITIZE, build_with_sanitizers

ROOT = Path(__file__).parents[3]
TESTS = (
    "tests/engine/kernels/test_cpp_operators.py",
    "tests/engine/kernels/test_cpp_draw.py",
    "tests/engine/attention/test_cpp_backend.py",
    "tests/engine/layers/test_decoder.py",
    "tests/engine/kernels/test_quantised_products.py",
    "tests/engine/kernels/test_cpp_state_kernels.py",
)
#: Plain torch has nothing to check, and a library without sanitizers is not built here.
CHOSEN = "not torch and not test_the_library_is_built_once"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Of a process with the sanitizers' runtime, whose library is built."""
    compiler = find_compiler()
    assert compiler is not None
    build_with_sanitizers()
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return {
        **os.environ,
        SANITIZE: "1",
        "LD_PRELOAD": runtime.stdout.strip(),  # Python was built without the sanitizers
        # Python itself leaks at exit; undefined behaviour is an instruction that is none.
        "ASAN_OPTIONS": "detect_leaks=0:handle_sigill=1",
        "PYTHONMALLOC": "malloc",  # so that small allocations are checked too
        "PYTHONPATH": str(ROOT),
    }


@pytest.mark.slow
@pytest.mark.timeout(400)  # the library is built first; beside it mypy may run
def test_the_operators_read_and_write_only_what_is_theirs(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", CHOSEN, *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout


#: Each wrong call ends a process of its own.
_WRONG = """
import os, torch
from tests.engine.kernels.libraries import library
x = torch.zeros(1, 40)
activate = library().function("activation", torch.float32)
for num_rows, size in ((1, 4096), (2**62, 4)):
    if (process := os.fork()) == 0:
        activate(2, x.data_ptr(), x.data_ptr(), num_rows, size, 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) != 0
"""


def test_a_write_beyond_the_end_and_an_overflow_would_be_seen(environment: dict[str, str]) -> None:
    """Checks that the test above can fail."""
    command = [sys.executable, "-c", _WRONG]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    beyond, overflow = re.findall(r"SUMMARY: AddressSanitizer: (\S+) .* in (.*)", done.stderr)
    assert beyond[0] != "ILL"
    assert "GeluTanh" in beyond[1]
    assert overflow == ("ILL", "agon_activation_f32")
