"""Short time slices of threads and processes."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from cli.time_slices import ask_for_short_slices

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a matter of Linux's scheduler")


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"], preexec_fn=lambda: os.nice(3)) as process:
        yield process.pid
        process.kill()


def resets_on_fork(thread: int) -> bool:
    return bool(os.sched_getscheduler(thread) & os.SCHED_RESET_ON_FORK)


def test_a_process_keeps_its_policy_and_its_priority(process: int) -> None:
    ask_for_short_slices(process)

    assert os.sched_getscheduler(process) == os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
    assert os.getpriority(os.PRIO_PROCESS, process) == 3


def test_threads_that_are_started_later_have_the_systems_own_slices() -> None:
    seen: list[bool] = []

    def answer() -> None:  # in a thread, so that the process of the tests stays as it is
        ask_for_short_slices()
        seen.append(resets_on_fork(threading.get_native_id()))
        compute = threading.Thread(target=lambda: seen.append(resets_on_fork(threading.get_native_id())))
        compute.start()
        compute.join()

    thread = threading.Thread(target=answer)
    thread.start()
    thread.join()

    assert seen == [True, False]


def test_a_process_that_has_ended_is_no_error(process: int) -> None:
    os.kill(process, 9)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)

    ask_for_short_slices(process)
    ask_for_short_slices(2**22 + 1)  # more than there can be
