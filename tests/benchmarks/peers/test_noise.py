"""Cores used by this run, its children, and other processes."""

import os
import subprocess
import sys
import time

from benchmarks.peers.noise import NoiseMeter, process_tree, resident_bytes, tree_busy_s


def test_work_of_a_child_counts_as_own() -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass"
    with NoiseMeter(os.getpid()) as meter:
        subprocess.run([sys.executable, "-c", code], check=True)
    assert meter.noise().own_cores > 0.01


def test_a_sleeping_process_uses_nothing() -> None:
    code = "import time; print('asleep', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        child.stdout.readline()
        before = tree_busy_s(child.pid)
        time.sleep(0.3)
        assert tree_busy_s(child.pid) - before <= 0.1
        assert child.pid in process_tree(os.getpid())
        assert resident_bytes(child.pid) > 2**20
    finally:
        child.kill()
        child.communicate()


def test_of_a_process_that_has_ended_nothing_is_known() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert tree_busy_s(child.pid) == 0
    assert resident_bytes(child.pid) == 0
