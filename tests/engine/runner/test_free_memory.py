"""Free memory, from the system and from the limit of a container."""

from pathlib import Path

import pytest
import torch

from engine.runner import free_memory


def test_free_memory_is_what_the_system_says_is_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       9000 kB\nMemAvailable:    5000 kB\n")
    monkeypatch.setattr(free_memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory, "_CGROUP", tmp_path)
    assert free_memory.free_memory_bytes(torch.device("cpu")) == 5000 * 1024


@pytest.mark.parametrize(("limit", "expected"), [("max", 5_120_000), ("3000000", 2_000_000), ("500000", 0)])
def test_the_limit_of_a_container_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, expected: int
) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable:    5000 kB\n")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    monkeypatch.setattr(free_memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory, "_CGROUP", tmp_path)
    assert free_memory.free_memory_bytes(torch.device("cpu")) == expected
