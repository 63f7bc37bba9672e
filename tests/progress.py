"""A pytest plugin for long runs in several processes: a test that fails is shown at once, and a run that is ended from
outside says which tests were running. Without it both are known only once the run is whole."""

import os
import signal
import time
from types import FrameType

import pytest

_MAX_LINES = 40  #: of what a failure shows at once; all of it comes at the end


class Progress:
    """For the process that collects reports; test processes have none."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._began: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins, in any process."""
        self._began[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test has ended."""
        self._began.pop(nodeid, None)

    @pytest.hookimpl(trylast=True)  # after its letter
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Show a failure."""
        if report.failed:
            lines = report.longreprtext.splitlines()
            self._show(f"FAILED {report.nodeid} ({report.when})", *lines[-_MAX_LINES:])

    def end(self, number: int, frame: FrameType | None) -> None:
        """End by a signal, as without a handler, after naming what runs."""
        now = time.monotonic()
        running = (f"  {now - began:6.1f} s  {nodeid}" for nodeid, began in self._began.items())
        self._show(f"ended by {signal.Signals(number).name} while these tests ran:", *running)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _show(self, *lines: str) -> None:
        self._reporter.ensure_newline()
        for line in lines:
            self._reporter.write_line(line)
        self._reporter.flush()


@pytest.hookimpl(trylast=True)  # after the reporter
def pytest_configure(config: pytest.Config) -> None:
    """Register it in the process that prints."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not hasattr(config, "workerinput") and reporter is not None:  # xdist gives it to the processes of tests
        progress = Progress(reporter)
        config.pluginmanager.register(progress, "progress")
        signal.signal(signal.SIGTERM, progress.end)
