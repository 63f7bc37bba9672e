"""Servers that a benchmark starts and stops."""

import os
from pathlib import Path

import httpx
import pytest

from benchmarks.peers.noise import process_tree
from benchmarks.serving.worker import served_model


def test_a_server_runs_as_long_as_it_is_needed() -> None:
    with served_model(Path("echo"), "--engine", "echo") as worker:
        assert httpx.get(f"{worker.url}/v1/models", timeout=60).status_code == 200
        assert worker.pid in process_tree(os.getpid())
    assert worker.pid not in process_tree(os.getpid())


def test_a_server_that_does_not_start_shows_its_output() -> None:
    with pytest.raises(RuntimeError, match="no-such-folder"), served_model(Path("no-such-folder")):
        pass
