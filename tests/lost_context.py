"""A plugin for tests on a GPU in several processes (pytest-xdist): after an illegal access every further call of a
process fails, so the process ends with the test that has caused it, and another one runs those that are left."""

import os
import sys
from collections.abc import Generator

import pytest

from benchmarks.gpu.measure import CONTEXT_LOST, is_context_lost


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules and is_context_lost():
        print(
            f"{item.nodeid} has lost the context of the device:\n{report.longreprtext}", file=sys.__stderr__, flush=True
        )
        os._exit(CONTEXT_LOST)
    return report
