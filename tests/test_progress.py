"""What a long run of tests says before it is whole."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TESTS = """
import time

def test_wrong():
    assert 1 == 2

def test_slow():
    print("slow runs")
    time.sleep(60)
"""


def test_a_failure_is_shown_at_once_and_an_end_from_outside_names_what_was_running(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_two.py").write_text(_TESTS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "-p",
        "tests.progress",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    command = [*words, "-c", str(tmp_path / "pytest.ini"), f"--rootdir={tmp_path}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        before = []
        for line in run.stdout:
            before.append(line)
            if "slow runs" in line:
                break
        run.send_signal(signal.SIGTERM)
        after = run.stdout.read()

    assert "FAILED test_two.py::test_wrong (call)" in "".join(before)
    assert "assert 1 == 2" in "".join(before)
    assert "ended by SIGTERM while these tests ran:" in after
    assert "test_two.py::test_slow" in after
    assert run.returncode == -signal.SIGTERM
