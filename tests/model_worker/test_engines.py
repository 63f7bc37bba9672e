"""What is settled before the engine's libraries are loaded."""

import os

import pytest

from model_worker.config import WorkerSettings
from model_worker.engines import bound_spinning


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # so that what there was comes back afterwards
    monkeypatch.delenv("GOMP_SPINCOUNT")


@pytest.mark.parametrize(("num_threads", "is_bounded"), [(None, True), (2, True), (3, True), (1, False)])
def test_idle_threads_spin_shortly_where_no_core_is_free(
    two_cores: None, num_threads: int | None, is_bounded: bool
) -> None:
    bound_spinning(WorkerSettings(model="m", threads=num_threads))

    assert ("GOMP_SPINCOUNT" in os.environ) == is_bounded


def test_a_spin_count_that_is_set_already_stays(two_cores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "77")

    bound_spinning(WorkerSettings(model="m", threads=2))

    assert os.environ["GOMP_SPINCOUNT"] == "77"
