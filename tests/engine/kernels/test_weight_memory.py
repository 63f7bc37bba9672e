"""Private memory for packed weights: alignment, huge pages, lifetime."""

import re
from pathlib import Path

import pytest
import torch

from engine.kernels.cpu.weight_memory import PrivateMemory

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def test_tensors_do_not_overlap_and_start_on_cache_lines() -> None:
    memory = PrivateMemory()
    tensors = [
        memory.empty(count, dtype) for count, dtype in ((7, torch.int8), (100, torch.bfloat16), (3, torch.float32))
    ]
    for value, tensor in enumerate(tensors):
        tensor.fill_(value)
    assert [tensor.unique().tolist() for tensor in tensors] == [[0], [1], [2]]
    assert all(tensor.data_ptr() % 64 == 0 for tensor in tensors)


def test_what_is_larger_than_a_block_gets_one_of_its_own() -> None:
    memory = PrivateMemory(64 << 20)
    small, large, after = (memory.empty(count, torch.uint8) for count in (10, 70 << 20, 10))
    assert len(large) == 70 << 20
    large[-1] = 1
    small.fill_(2)
    after.fill_(3)
    assert large[-1] == 1


def test_tensors_of_a_small_model_lie_in_one_block() -> None:
    """The last huge page of each block is in memory as a whole."""
    memory = PrivateMemory()
    for _ in range(8):
        memory.empty((50 << 20) + 1, torch.uint8)
    assert len(memory.contents) == 1


def test_memory_outlives_the_object() -> None:
    tensor = PrivateMemory().empty(1000, torch.float32)
    tensor.fill_(1.5)
    assert tensor.sum() == 1500


@pytest.mark.skipif(not HUGE_PAGES.is_file() or "[never]" in HUGE_PAGES.read_text(), reason="no huge pages here")
def test_it_lies_in_huge_pages() -> None:
    """A shared mapping would get no huge pages, and products would read weights a third slower."""
    tensor = PrivateMemory().empty(32 << 20, torch.uint8).fill_(1)
    kilobytes, is_inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if mapping := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            is_inside = int(mapping[1], 16) <= tensor.data_ptr() < int(mapping[2], 16)
        elif is_inside and line.startswith("AnonHugePages:"):
            kilobytes = int(line.split()[1])
    assert kilobytes >= 16 << 10
