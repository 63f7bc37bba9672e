"""Packed weights files: every worker of the same checkpoint on this machine maps the same file, so that one copy of the
weights is in memory.

A packed weights file is named by its key, written once and never changed. It is written under a temporary name and
renamed when it is complete, so any file with the final name can be used, and a process that dies while it writes leaves
nothing that another one would read. Removing a file does not harm processes that have mapped it. This module knows no
models and not what a key means.
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
from engine.kernels.cpu.weight_memory import HUGE_PAGE_BYTES, PrivateMemory, huge_block

_FORMAT = "agon-packed-weights-1"
_COMPLETE, _PARTIAL = ".packed", ".partial"
_MAX_BYTES = 64 << 30  #: of all files together; the least recently used are removed first
_MAX_WAIT_S = 120.0  #: while another worker writes the same file
_POLL_S = 0.02
_PROBE_BYTES = 2 * HUGE_PAGE_BYTES
#: Packed weights files may take 1 / _ROOM_FOR_OTHERS of the disk's free bytes and their own together.
_ROOM_FOR_OTHERS = 2


class PackedWeightsUnavailable(Exception):
    """No packed weights file can be written or read here; the message says why."""


class FileMemory:
    """The WeightMemory of a packed weights file: hands out its tensors in the order in which they were written."""

    is_filled = True

    def __init__(self, memory: torch.Tensor, spans: Sequence[tuple[int, int]], *, is_shared: bool) -> None:
        """memory: the file's content. spans: first byte and number of bytes of each tensor. is_shared: the memory is
        the mapped file itself, not a copy."""
        self.is_shared = is_shared
        self._memory = memory
        self._spans = iter(spans)

    def empty(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """The next tensor, [num_elements], read-only. Raises PackedWeightsUnavailable if it has another size in the
        file."""
        first, num_bytes = next(self._spans, (0, -1))
        if num_bytes != num_elements * dtype.itemsize:
            raise PackedWeightsUnavailable("the file is of another model")
        return self._memory[first : first + num_bytes].view(dtype)


class PackedWeightsFiles:
    """The packed weights files of one folder. Several processes may use a folder at once."""

    def __init__(self, folder: Path, *, only_huge: bool, max_bytes: int = _MAX_BYTES) -> None:
        """only_huge: if the file system gives no huge pages, no file is written, and the content of existing files is
        copied into private huge pages. max_bytes: of all files together."""
        self.folder = folder
        self._only_huge = only_huge
        self._max_bytes = max_bytes

    def open(self, key: str) -> FileMemory | None:
        """The file of that key, mapped and marked as used. None: there is none; a damaged one is removed. Raises
        PackedWeightsUnavailable."""
        path = self._path(key, _COMPLETE)
        try:
            with path.open("rb") as file:
                os.utime(file.fileno())  # for the order of removal
                header = _read_header(file.read(HUGE_PAGE_BYTES), key)
                if header is None or os.fstat(file.fileno()).st_size != HUGE_PAGE_BYTES + header["num_bytes"]:
                    path.unlink(missing_ok=True)
                    return None
                memory = map_file(file.fileno(), HUGE_PAGE_BYTES, header["num_bytes"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PackedWeightsUnavailable(f"{path}: {error.strerror}") from error
        is_shared = is_huge(memory) or not self._only_huge
        if not is_shared:
            memory = huge_block(len(memory)).copy_(memory)
        return FileMemory(memory, header["spans"], is_shared=is_shared)

    @contextlib.contextmanager
    def temporary_file(self, key: str) -> Iterator[int]:
        """A locked temporary file for `write`, as a descriptor: only one process at a time writes the file of a key.
        Waits for the lock. Raises PackedWeightsUnavailable."""
        partial = self._path(key, _PARTIAL)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self._only_huge and not self.gives_huge_pages():
                raise PackedWeightsUnavailable(f"the file system of {self.folder} gives no huge pages")
            file = _locked(partial)
        except OSError as error:
            raise PackedWeightsUnavailable(f"{self.folder}: {error.strerror}") from error
        try:
            yield file
        finally:
            with contextlib.suppress(OSError):
                if _is_named(file, partial):
                    partial.unlink()
            os.close(file)  # ends the lock too

    def write(self, key: str, file: int, memory: PrivateMemory) -> None:
        """Write all tensors that the memory has handed out, and give the temporary file its final name. If it raises
        PackedWeightsUnavailable, `temporary_file` removes the file."""
        contents = memory.contents
        starts = [0]
        for content in contents:
            starts.append(starts[-1] + len(content))
        spans = [(starts[span.block] + span.first, span.num_bytes) for span in memory.spans]
        header = json.dumps({"format": _FORMAT, "key": key, "num_bytes": starts[-1], "spans": spans}).encode()
        partial = self._path(key, _PARTIAL)
        try:
            if len(header) > HUGE_PAGE_BYTES:
                raise PackedWeightsUnavailable("too many tensors for a packed weights file")
            self._make_room(starts[-1])
            os.ftruncate(file, 0)
            for start, content in zip(starts, contents, strict=False):
                _write_all(file, content.numpy().data, HUGE_PAGE_BYTES + start)
            os.ftruncate(file, HUGE_PAGE_BYTES + starts[-1])
            _write_all(file, memoryview(header), 0)
            os.fsync(file)  # after a power cut the final name must not refer to missing content
            partial.replace(self._path(key, _COMPLETE))
        except OSError as error:
            raise PackedWeightsUnavailable(f"cannot write {partial}: {error.strerror}") from error

    def remove(self, key: str) -> None:
        """Remove the file of that key, if there is one. Processes that have mapped it keep its content."""
        self._path(key, _COMPLETE).unlink(missing_ok=True)

    def gives_huge_pages(self) -> bool:
        """Whether a file written to the folder gets huge pages; writes one to find out. Raises OSError."""
        probe = self.folder / f"probe-{os.getpid()}{_PARTIAL}"
        file = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Not zeros, which would have no memory yet: a write that waits for memory is split into smaller pages.
            _write_all(file, memoryview(b"x" * _PROBE_BYTES), 0)
            return is_huge(map_file(file, 0, _PROBE_BYTES))
        finally:
            os.close(file)
            probe.unlink(missing_ok=True)

    def sizes(self) -> dict[Path, int]:
        """Bytes of each packed weights file, the least recently used first."""
        found = []
        for path in self.folder.glob(f"*{_COMPLETE}"):
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path, path.stat().st_size))
        return {path: size for _, path, size in sorted(found)}

    def _path(self, key: str, ending: str) -> Path:
        return self.folder / f"{key}{ending}"

    def _make_room(self, num_bytes: int) -> None:
        """Remove temporary files of dead processes, and the least recently used files while the bound is exceeded."""
        for path in self.folder.glob(f"*{_PARTIAL}"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        sizes = self.sizes()
        held = sum(sizes.values())
        bound = min(self._max_bytes, (shutil.disk_usage(self.folder).free + held) // _ROOM_FOR_OTHERS)
        if num_bytes > bound:
            raise PackedWeightsUnavailable(
                f"{num_bytes >> 20} MiB are more than the {bound >> 20} MiB that these files may take"
            )
        for path, size in sizes.items():
            if held + num_bytes <= bound:
                return
            path.unlink(missing_ok=True)
            held -= size


def _locked(path: Path) -> int:
    """The file of that name, open and locked. Until it is locked, another process may rename or remove it: then a new
    file is opened. Raises OSError."""
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
            raise PackedWeightsUnavailable(f"another worker has been writing {path} for {_MAX_WAIT_S:.0f} s")
        time.sleep(_POLL_S)


def _is_named(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _read_header(head: bytes, key: str) -> dict[str, Any] | None:
    """None: it is no packed weights file of that key."""
    try:
        header = json.loads(head.rstrip(b"\0"))
    except ValueError:
        return None
    is_ours = isinstance(header, dict) and header.get("format") == _FORMAT and header.get("key") == key
    return header if is_ours else None


def _write_all(file: int, content: memoryview, offset: int) -> None:
    """In writes of whole huge pages, so that the file system can keep them as huge pages."""
    for first in range(0, len(content), HUGE_PAGE_BYTES):
        part = content[first : first + HUGE_PAGE_BYTES]
        done = 0
        while done < len(part):
            done += os.pwrite(file, part[done:], offset + first + done)
