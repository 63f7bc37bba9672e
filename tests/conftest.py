"""What holds for every test: quick ones run first, in CI an end-to-end test is never skipped silently, and without a
CUDA device Triton's kernels run in its interpreter."""

import os
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


def _cost(item: pytest.Item) -> int:
    if "browser" in getattr(item, "fixturenames", ()):
        return 3  # a browser that is shared keeps an event loop in this thread: no coroutine could run after it
    if item.get_closest_marker("e2e"):
        return 2
    return 1 if item.get_closest_marker("slow") else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_cost)  # stable: the order of files and of tests in them stays


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if os.environ.get("CI") and report.skipped and item.get_closest_marker("e2e"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report
