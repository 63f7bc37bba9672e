"""Packed weights in a file, which every worker of the same checkpoint on this machine maps: one copy in memory for all.

An image is written once, under a name that is its key, and never changed: it is complete before it has that name, so
whoever finds one may use it, and whoever dies while it writes leaves nothing that others could read. Removing one does
not harm those who have mapped it. Knows no models and not what a key means.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from engine.kernels.cpu.file_mapping import is_huge, map_file
from engine.kernels.cpu.weight_arena import HUGE_PAGE_BYTES, PrivateArena, huge_block

_FORMAT = "agon-packed-weights-1"
_COMPLETE, _PARTIAL = ".packed", ".partial"
_MAX_BYTES = 64 << 30  #: of all images together; the least recently used go first
_MAX_WAIT_S = 120.0  #: for another worker that is making the same image
_POLL_S = 0.02
_PROBE_BYTES = 2 * HUGE_PAGE_BYTES
_ROOM_FOR_OTHERS = 2  #: images may fill 1 / it of what is free and what they hold


class ImageUnavailable(Exception):
    """No image can be written or read here; the message says why."""


class ImageArena:
    """Hands out the weights of an image, in the order in which they were written."""

    is_filled = True

    def __init__(self, memory: torch.Tensor, spans: Sequence[tuple[int, int]], *, is_shared: bool) -> None:
        """spans: first byte and number of bytes of each tensor."""
        self.is_shared = is_shared
        self._memory = memory
        self._spans = iter(spans)

    def empty(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        first, num_bytes = next(self._spans, (0, -1))
        if num_bytes != num_elements * dtype.itemsize:
            raise ImageUnavailable("the image is of another model")
        return self._memory[first : first + num_bytes].view(dtype)


class WeightImages:
    """The images of one folder."""

    def __init__(self, folder: Path, *, only_huge: bool, max_bytes: int = _MAX_BYTES) -> None:
        """only_huge: weights that a file does not hold in huge pages are copied into private ones, and none are written
        where the file system has none."""
        self.folder = folder
        self._only_huge = only_huge
        self._max_bytes = max_bytes

    def open(self, key: str) -> ImageArena | None:
        """None: there is none (or one that is damaged, which is removed). Raises ImageUnavailable."""
        path = self._path(key, _COMPLETE)
        try:
            with path.open("rb") as file:
                os.utime(file.fileno())  # it is used now
                header = _read_header(file.read(HUGE_PAGE_BYTES), key)
                if header is None or os.fstat(file.fileno()).st_size != HUGE_PAGE_BYTES + header["num_bytes"]:
                    path.unlink(missing_ok=True)
                    return None
                memory = map_file(file.fileno(), HUGE_PAGE_BYTES, header["num_bytes"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ImageUnavailable(f"{path}: {error.strerror}") from error
        is_shared = is_huge(memory) or not self._only_huge
        if not is_shared:
            memory = huge_block(len(memory)).copy_(memory)
        return ImageArena(memory, header["spans"], is_shared=is_shared)

    @contextlib.contextmanager
    def draft(self, key: str) -> Iterator[int]:
        """The right to write that image, for one process at a time; a file for `write`. Raises ImageUnavailable."""
        partial = self._path(key, _PARTIAL)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self._only_huge and not self.gives_huge_pages():
                raise ImageUnavailable(f"the file system of {self.folder} gives no huge pages")
            file = _locked(partial)
        except OSError as error:
            raise ImageUnavailable(f"{self.folder}: {error.strerror}") from error
        try:
            yield file
        finally:
            with contextlib.suppress(OSError):
                if _is_named(file, partial):
                    partial.unlink()
            os.close(file)  # ends the lock too

    def write(self, key: str, draft: int, arena: PrivateArena) -> None:
        """All that the arena has handed out. Raises ImageUnavailable, and leaves nothing behind then."""
        contents = arena.contents
        starts = [0]
        for content in contents:
            starts.append(starts[-1] + len(content))
        spans = [(starts[span.block] + span.first, span.num_bytes) for span in arena.spans]
        header = json.dumps({"format": _FORMAT, "key": key, "num_bytes": starts[-1], "spans": spans}).encode()
        partial = self._path(key, _PARTIAL)
        try:
            if len(header) > HUGE_PAGE_BYTES:
                raise ImageUnavailable("too many tensors for an image")
            self._make_room(starts[-1])
            os.ftruncate(draft, 0)
            for start, content in zip(starts, contents, strict=False):
                _write_all(draft, content.numpy().data, HUGE_PAGE_BYTES + start)
            os.ftruncate(draft, HUGE_PAGE_BYTES + starts[-1])
            _write_all(draft, memoryview(header), 0)
            os.fsync(draft)  # a name that outlives a power cut must not outlive its content
            partial.replace(self._path(key, _COMPLETE))
        except OSError as error:
            raise ImageUnavailable(f"cannot write {partial}: {error.strerror}") from error

    def remove(self, key: str) -> None:
        self._path(key, _COMPLETE).unlink(missing_ok=True)

    def gives_huge_pages(self) -> bool:
        """Whether a file written to the folder now has them. Raises OSError."""
        probe = self.folder / f"probe-{os.getpid()}{_PARTIAL}"
        file = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Not zeros, which would have no memory yet: a write that must wait for some is cut into smaller pages.
            _write_all(file, memoryview(b"x" * _PROBE_BYTES), 0)
            return is_huge(map_file(file, 0, _PROBE_BYTES))
        finally:
            os.close(file)
            probe.unlink(missing_ok=True)

    def sizes(self) -> dict[Path, int]:
        """Bytes of each image, the least recently used first."""
        found = []
        for path in self.folder.glob(f"*{_COMPLETE}"):
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path, path.stat().st_size))
        return {path: size for _, path, size in sorted(found)}

    def _path(self, key: str, ending: str) -> Path:
        return self.folder / f"{key}{ending}"

    def _make_room(self, num_bytes: int) -> None:
        """Remove what nobody will miss: drafts of processes that have died, and images beyond the bound."""
        for path in self.folder.glob(f"*{_PARTIAL}"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        sizes = self.sizes()
        held = sum(sizes.values())
        bound = min(self._max_bytes, (shutil.disk_usage(self.folder).free + held) // _ROOM_FOR_OTHERS)
        if num_bytes > bound:
            raise ImageUnavailable(f"{num_bytes >> 20} MiB are more than the {bound >> 20} MiB that images may take")
        for path, size in sizes.items():
            if held + num_bytes <= bound:
                return
            path.unlink(missing_ok=True)
            held -= size


def _locked(path: Path) -> int:
    """The file of that name, open and locked; another process may rename or remove it until it is. Raises OSError."""
    deadline = time.monotonic() + _MAX_WAIT_S
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(file, path):
                return file
        except BlockingIOError:
            pass
        os.close(file)
        if time.monotonic() > deadline:
            raise ImageUnavailable(f"another worker has been making {path} for {_MAX_WAIT_S:.0f} s")
        time.sleep(_POLL_S)


def _is_named(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _read_header(head: bytes, key: str) -> dict[str, Any] | None:
    """None: it is no image of that key."""
    try:
        header = json.loads(head.rstrip(b"\0"))
    except ValueError:
        return None
    is_ours = isinstance(header, dict) and header.get("format") == _FORMAT and header.get("key") == key
    return header if is_ours else None


def _write_all(file: int, content: memoryview, offset: int) -> None:
    """In whole huge pages, so that the file system can keep them as such."""
    for first in range(0, len(content), HUGE_PAGE_BYTES):
        part = content[first : first + HUGE_PAGE_BYTES]
        done = 0
        while done < len(part):
            done += os.pwrite(file, part[done:], offset + first + done)
