"""What holds for every test: quick ones run first, in CI an end-to-end test is never skipped silently, without a CUDA
device Triton's kernels run in its interpreter, and what is drawn at random is the same in every run."""

import contextlib
import os
import platform
import sys
from collections.abc import Generator
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


def _cost(item: pytest.Item) -> int:
    if "browser" in getattr(item, "fixturenames", ()):
        return 3  # a browser that is shared keeps an event loop in this thread: no coroutine could run after it
    if item.get_closest_marker("e2e"):
        return 2
    return 1 if item.get_closest_marker("slow") else 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick files first, so that most failures come early. In several processes the slow ones go before them: begun
    late, they would leave the other processes idle for minutes. Files with a browser stay last."""
    costs: dict[str, int] = {}  # of files: the tests of one go to the same process together
    for item in items:
        costs[item.location[0]] = max(costs.get(item.location[0], 0), _cost(item))
    is_parallel = bool(config.getoption("numprocesses", None) or os.environ.get("PYTEST_XDIST_WORKER"))
    order = (1, 2, 0, 3) if is_parallel else (0, 1, 2, 3)
    # Stable: the order of files of one cost, and of tests in a file, stays.
    items.sort(key=lambda item: order.index(costs[item.location[0]]))


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
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return _OF_ONE_ARENA.get(file, file)

    return Files(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if os.environ.get("CI") and report.skipped and item.get_closest_marker("e2e"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report
