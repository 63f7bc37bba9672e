"""Images of packed weights: who writes one, who finds it, and what a process that dies or a full disk leaves behind."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from engine.kernels.cpu.weight_arena import PrivateArena
from engine.kernels.cpu.weight_image import ImageUnavailable, WeightImages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="images are for Linux")
MEBIBYTE = 1 << 20
SIZES = (1000, 3 * MEBIBYTE, 7)


@pytest.fixture
def images(tmp_path: Path) -> WeightImages:
    return WeightImages(tmp_path / "weights", only_huge=False)


def arena_of(value: int) -> PrivateArena:
    arena = PrivateArena()
    for size in SIZES:
        arena.empty(size, torch.int8).fill_(value)
    return arena


def put(images: WeightImages, key: str, value: int = 1) -> None:
    with images.draft(key) as draft:
        images.write(key, draft, arena_of(value))


def files(images: WeightImages) -> list[str]:
    return sorted(path.name for path in images.folder.iterdir())


def test_what_was_written_is_handed_out_in_the_same_order(images: WeightImages) -> None:
    written = PrivateArena()
    tensors = [
        written.empty(n, dtype) for n, dtype in ((5, torch.float32), (70 * MEBIBYTE, torch.int8), (9, torch.int32))
    ]
    for value, tensor in enumerate(tensors):
        tensor.fill_(value + 1)
    assert images.open("a") is None
    with images.draft("a") as draft:
        images.write("a", draft, written)
    arena = images.open("a")
    assert arena is not None
    assert arena.is_shared
    assert all(torch.equal(arena.empty(len(tensor), tensor.dtype), tensor) for tensor in tensors)
    with pytest.raises(ImageUnavailable):
        arena.empty(1, torch.int8)  # more than there is
    assert files(images) == ["a.packed"]


def test_the_file_itself_is_the_memory_and_outlives_its_name(images: WeightImages) -> None:
    put(images, "a", 3)
    arena = images.open("a")
    assert arena is not None
    tensor = arena.empty(SIZES[0], torch.int8)
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "a.packed" in line]
    assert [line[1] for line in maps] == ["r--s"]
    images.remove("a")
    assert tensor.unique().tolist() == [3]


def test_where_huge_pages_are_wanted_and_the_file_has_none_it_is_copied(
    images: WeightImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(images, "a", 4)
    monkeypatch.setattr("engine.kernels.cpu.weight_image.is_huge", lambda memory: False)
    picky = WeightImages(images.folder, only_huge=True)
    arena = picky.open("a")
    assert arena is not None
    assert not arena.is_shared
    assert arena.empty(SIZES[0], torch.int8).unique().tolist() == [4]
    assert "a.packed" not in Path("/proc/self/maps").read_text()
    with pytest.raises(ImageUnavailable, match="no huge pages"), picky.draft("b"):
        pass
    assert files(images) == ["a.packed"]


def test_whoever_waits_for_a_draft_finds_the_image(images: WeightImages) -> None:
    found = []

    def wait() -> None:
        with images.draft("a"):
            found.append(images.open("a") is not None)

    with images.draft("a") as draft:
        waiting = threading.Thread(target=wait)
        waiting.start()
        images.write("a", draft, arena_of(1))
    waiting.join(60)
    assert found == [True]
    assert files(images) == ["a.packed"]


_DYING = """
import sys
from pathlib import Path
from engine.kernels.cpu.weight_image import WeightImages
with WeightImages(Path(sys.argv[1]), only_huge=False).draft("a"):
    print("drafting", flush=True)
    sys.stdin.read()
"""


def test_a_writer_that_is_killed_leaves_nothing_that_others_wait_for_or_read(images: WeightImages) -> None:
    command = [sys.executable, "-c", _DYING, str(images.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "drafting\n"
        process.send_signal(signal.SIGKILL)
    assert files(images) == ["a.partial"]
    assert images.open("a") is None
    put(images, "b")
    assert files(images) == ["b.packed"]  # what nobody drafts any more goes
    put(images, "a")
    assert images.open("a") is not None


@pytest.mark.parametrize("size", [0, 100, 4 * MEBIBYTE])
def test_a_damaged_image_is_removed(images: WeightImages, size: int) -> None:
    put(images, "a")
    os.truncate(images.folder / "a.packed", size)
    assert images.open("a") is None
    assert files(images) == []


def test_an_image_under_anothers_name_is_not_used(images: WeightImages) -> None:
    put(images, "a")
    (images.folder / "a.packed").rename(images.folder / "b.packed")
    assert images.open("b") is None


def test_a_disk_that_takes_no_more_leaves_nothing_behind(images: WeightImages) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * MEBIBYTE, before[1]))
    try:
        with pytest.raises(ImageUnavailable, match="File too large"):
            put(images, "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert files(images) == []


def test_beyond_the_bound_the_least_recently_used_image_goes(images: WeightImages) -> None:
    put(images, "a")
    put(images, "b")
    size = (images.folder / "a.packed").stat().st_size
    bounded = WeightImages(images.folder, only_huge=False, max_bytes=2 * size)
    for age, key in ((100, "a"), (50, "b")):
        path = images.folder / f"{key}.packed"
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    bounded.open("a")
    put(bounded, "c")
    assert files(images) == ["a.packed", "c.packed"]
    with pytest.raises(ImageUnavailable, match="MiB"):
        put(WeightImages(images.folder, only_huge=False, max_bytes=size // 2), "d")
    assert files(images) == ["a.packed", "c.packed"]
