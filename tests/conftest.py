"""What holds for every test: quick ones run first, in CI an end-to-end test is never skipped silently, without a CUDA
device Triton's kernels run in its interpreter, and what is drawn at random is the same in every run."""

import contextlib
import gc
import logging
import os
import platform
import sys
from collections.abc import Generator, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest


def _may_have_cuda() -> bool:
    """Without importing torch, which most tests do not need."""
    try:
        return Path("/dev/nvidiactl").exists() and "+cpu" not in metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False


# Triton reads it when it is first imported, and transformers imports it while tests are still being collected.
if not _may_have_cuda():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # The interpreter's products are NumPy's. Where OpenBLAS takes its kernels of Haswell and Zen, the bits of a row
    # depend on its place among the rows, which they do not on a device. It is read when NumPy is first imported.
    if platform.machine() == "x86_64":
        os.environ["OPENBLAS_CORETYPE"] = "Sandybridge"


with contextlib.suppress(ImportError):  # a GPU machine may have little more than pytest
    from hypothesis import HealthCheck, settings

    # Before any test is imported: a property may fail because of the code alone, not by its examples of the day or on a
    # busy machine. AGON_SOAK=1 draws others.
    settings.register_profile(
        "agon",
        deadline=None,
        derandomize=os.environ.get("AGON_SOAK") != "1",
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("agon")


@pytest.fixture(autouse=True)
def _torch_draws_the_same_whatever_ran_before() -> None:
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _fastapi_keeps_no_apps() -> Iterator[None]:
    """It caches what kind of callable a route is, 4,096 of them, and each keeps its app with all its routes: collecting
    garbage among hundreds of apps took a quarter of the time of their tests."""
    yield
    if (models := sys.modules.get("fastapi.dependencies.models")) is not None:
        for function in vars(models).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


@pytest.fixture(autouse=True)
def _no_service_logs_on() -> Iterator[None]:
    """A service that a test has run in this process sends the log of later tests to a stream that is closed by then."""
    yield
    if (logs := sys.modules.get("service_kit.logs")) is not None:
        handlers = logging.getLogger().handlers
        handlers[:] = [handler for handler in handlers if not isinstance(handler.formatter, logs.JsonLines)]


def _shares_the_browser(file: str) -> bool:
    return file.startswith("tests/webui/") and file.endswith("_in_browser.py")


def _cost(item: pytest.Item) -> int:
    if item.get_closest_marker("e2e"):
        return 2  # their browsers end with the file
    if "browser" in getattr(item, "fixturenames", ()):
        assert _shares_the_browser(item.location[0]), f"{item.location[0]}: a file with the browser is named so"
        return 3  # a browser that is shared keeps an event loop in this thread: no coroutine could run after it
    return 1 if item.get_closest_marker("slow") else 0


def _left_out(items: list[pytest.Item], marker: str) -> Iterator[pytest.Item]:
    """marker(n) means n variants of a test, evenly among all of them, one where n is not given: yields the others."""
    variants: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker(marker) is not None:
            variants.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for same in variants.values():
        (count,) = same[0].get_closest_marker(marker).args or (1,)  # type: ignore[union-attr]
        kept = {(2 * index + 1) * len(same) // (2 * count) for index in range(count)}
        yield from (item for index, item in enumerate(same) if index not in kept)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick files first, so that most failures come early. In several processes the slow ones go before them: begun
    late, they would leave the other processes idle for minutes. Files with a browser stay last."""
    for item in _left_out(items, "first_minutes"):
        item.own_markers = [mark for mark in item.own_markers if mark.name != "first_minutes"]
    for item in _left_out(items, "sampled"):
        item.add_marker("long")
    costs: dict[str, int] = {}  # of files: the tests of one go to the same process together
    slow: set[str] = set()
    for item in items:
        costs[item.location[0]] = max(costs.get(item.location[0], 0), _cost(item))
        if item.get_closest_marker("slow"):
            slow.add(item.location[0])
    is_parallel = bool(config.getoption("numprocesses", None) or os.environ.get("PYTEST_XDIST_WORKER"))
    order = (1, 2, 0, 3) if is_parallel else (0, 1, 2, 3)
    # Stable: the order of files of one cost, and of tests in a file, stays.
    items.sort(key=lambda item: (order.index(costs[item.location[0]]), item.location[0] not in slow))


def pytest_collection_finish() -> None:
    gc.freeze()  # modules and tests stay for ever: no collection needs to traverse them, half a second each time


#: Files that share an arena, which is started once for them in one process.
_OF_ONE_ARENA = {
    f"tests/e2e/test_{name}.py": arena
    for arena, names in {
        "demo": ("api", "browser", "examples", "wheel"),
        "echo": ("faults", "join", "terminal_chat"),
    }.items()
    for name in names
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):  # type: ignore[misc]
        """Tests with the browser wait more than they compute: the first process runs them beside the second half of the
        other files. After them it can run nothing else; the others help once they have run everything else."""

        _num_files = 0

        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return _OF_ONE_ARENA.get(file, file)

        def _assign_work_unit(self, node: Any) -> None:
            self._num_files = max(self._num_files, len(self.workqueue))
            is_half_done = 2 * len(self.workqueue) < self._num_files
            begins = is_half_done and node is self.nodes[0] and len(self.nodes) > 1
            if (begins or self._has_the_browser(node)) and (file := self._next_with_the_browser()):
                self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

        def _reschedule(self, node: Any) -> None:
            if self._has_the_browser(node) and not self._next_with_the_browser() and not node.shutting_down:
                node.shutdown()  # after the tests that it has been given
            super()._reschedule(node)

        def _has_the_browser(self, node: Any) -> bool:
            return any(map(_shares_the_browser, self.assigned_work[node]))

        def _next_with_the_browser(self) -> str | None:
            return next(filter(_shares_the_browser, self.workqueue), None)

    return Files(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if os.environ.get("CI") and report.skipped and item.get_closest_marker("e2e"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report
