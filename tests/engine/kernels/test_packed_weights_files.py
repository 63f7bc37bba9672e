"""Packed weights files: one worker writes a file and others map it; dead writers and full disks leave nothing
behind."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from engine.kernels.cpu.packed_weights_files import PackedWeightsFiles, PackedWeightsUnavailable
from engine.kernels.cpu.weight_memory import PrivateMemory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packed weights files are for Linux")
MEBIBYTE = 1 << 20
SIZES = (1000, 3 * MEBIBYTE, 7)


@pytest.fixture
def packed(tmp_path: Path) -> PackedWeightsFiles:
    return PackedWeightsFiles(tmp_path / "weights", only_huge=False)


def memory_of(value: int) -> PrivateMemory:
    memory = PrivateMemory()
    for size in SIZES:
        memory.empty(size, torch.int8).fill_(value)
    return memory


def put(packed: PackedWeightsFiles, key: str, value: int = 1) -> None:
    with packed.temporary_file(key) as temporary:
        packed.write(key, temporary, memory_of(value))


def files(packed: PackedWeightsFiles) -> list[str]:
    return sorted(path.name for path in packed.folder.iterdir())


def test_what_was_written_is_handed_out_in_the_same_order(packed: PackedWeightsFiles) -> None:
    written = PrivateMemory(64 * MEBIBYTE)
    tensors = [
        written.empty(n, dtype) for n, dtype in ((5, torch.float32), (70 * MEBIBYTE, torch.int8), (9, torch.int32))
    ]
    for value, tensor in enumerate(tensors):
        tensor.fill_(value + 1)
    assert packed.open("a") is None
    with packed.temporary_file("a") as temporary:
        packed.write("a", temporary, written)
    memory = packed.open("a")
    assert memory is not None
    assert memory.is_shared
    assert all(torch.equal(memory.empty(len(tensor), tensor.dtype), tensor) for tensor in tensors)
    with pytest.raises(PackedWeightsUnavailable):
        memory.empty(1, torch.int8)  # more than there is
    assert files(packed) == ["a.packed"]


def test_the_file_itself_is_the_memory_and_outlives_its_name(packed: PackedWeightsFiles) -> None:
    put(packed, "a", 3)
    memory = packed.open("a")
    assert memory is not None
    tensor = memory.empty(SIZES[0], torch.int8)
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "a.packed" in line]
    assert [line[1] for line in maps] == ["r--s"]
    packed.remove("a")
    assert tensor.unique().tolist() == [3]


def test_where_huge_pages_are_wanted_and_the_file_has_none_it_is_copied(
    packed: PackedWeightsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(packed, "a", 4)
    monkeypatch.setattr("engine.kernels.cpu.packed_weights_files.is_huge", lambda memory: False)
    picky = PackedWeightsFiles(packed.folder, only_huge=True)
    memory = picky.open("a")
    assert memory is not None
    assert not memory.is_shared
    assert memory.empty(SIZES[0], torch.int8).unique().tolist() == [4]
    assert "a.packed" not in Path("/proc/self/maps").read_text()
    with pytest.raises(PackedWeightsUnavailable, match="no huge pages"), picky.temporary_file("b"):
        pass
    assert files(packed) == ["a.packed"]


def test_a_worker_that_waits_for_another_finds_its_file(packed: PackedWeightsFiles) -> None:
    found = []

    def wait() -> None:
        with packed.temporary_file("a"):
            found.append(packed.open("a") is not None)

    with packed.temporary_file("a") as temporary:
        waiting = threading.Thread(target=wait)
        waiting.start()
        packed.write("a", temporary, memory_of(1))
    waiting.join(60)
    assert found == [True]
    assert files(packed) == ["a.packed"]


_DYING = """
import sys
from pathlib import Path
from engine.kernels.cpu.packed_weights_files import PackedWeightsFiles
with PackedWeightsFiles(Path(sys.argv[1]), only_huge=False).temporary_file("a"):
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_a_writer_that_is_killed_leaves_nothing_that_others_wait_for_or_read(packed: PackedWeightsFiles) -> None:
    command = [sys.executable, "-c", _DYING, str(packed.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    assert files(packed) == ["a.partial"]
    assert packed.open("a") is None
    put(packed, "b")
    assert files(packed) == ["b.packed"]  # temporary files of dead processes are removed
    put(packed, "a")
    assert packed.open("a") is not None


@pytest.mark.parametrize("size", [0, 100, 4 * MEBIBYTE])
def test_a_damaged_file_is_removed(packed: PackedWeightsFiles, size: int) -> None:
    put(packed, "a")
    os.truncate(packed.folder / "a.packed", size)
    assert packed.open("a") is None
    assert files(packed) == []


def test_a_file_under_anothers_name_is_not_used(packed: PackedWeightsFiles) -> None:
    put(packed, "a")
    (packed.folder / "a.packed").rename(packed.folder / "b.packed")
    assert packed.open("b") is None


def test_a_disk_that_takes_no_more_leaves_nothing_behind(packed: PackedWeightsFiles) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * MEBIBYTE, before[1]))
    try:
        with pytest.raises(PackedWeightsUnavailable, match="File too large"):
            put(packed, "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert files(packed) == []


def test_beyond_the_bound_the_least_recently_used_file_goes(packed: PackedWeightsFiles) -> None:
    put(packed, "a")
    put(packed, "b")
    size = (packed.folder / "a.packed").stat().st_size
    bounded = PackedWeightsFiles(packed.folder, only_huge=False, max_bytes=2 * size)
    for age, key in ((100, "a"), (50, "b")):
        path = packed.folder / f"{key}.packed"
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    bounded.open("a")
    put(bounded, "c")
    assert files(packed) == ["a.packed", "c.packed"]
    with pytest.raises(PackedWeightsUnavailable, match="MiB"):
        put(PackedWeightsFiles(packed.folder, only_huge=False, max_bytes=size // 2), "d")
    assert files(packed) == ["a.packed", "c.packed"]
