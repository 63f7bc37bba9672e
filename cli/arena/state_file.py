"""The file in which the supervisor says how its processes are; the controller shows it in GET /health.

The file is written by renaming, so that a reader finds either the old content or the new. On a full disk there is no
room for a second file, so the old one is overwritten in place: it has been given its size in advance.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from cli.arena.child import Child
from wire.probes import ProcessHealth, ProcessList

_PADDED_BYTES = 4096  #: a multiple of every file system's block: a longer list then rarely needs a further block


class StateFile:
    """Written by one supervisor at every change of a state."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = ""

    def write(self, children: Sequence[Child]) -> None:
        """Write the states of all processes. Where the disk refuses, the file keeps its content until the next
        change."""
        processes = ProcessList(
            processes=tuple(
                ProcessHealth(name=child.spec.name, state=child.state.value, restarts=child.num_restarts)
                for child in children
            )
        )
        text = processes.model_dump_json()
        if text == self._written:
            return
        content = text.encode()
        content += b" " * (-len(content) % _PADDED_BYTES)
        partial = self._path.with_suffix(".new")
        try:
            partial.write_bytes(content)
            partial.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
            if not self._overwrite(content):
                return
        self._written = text

    def remove(self) -> None:
        """Delete the file: no supervisor runs any more."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _overwrite(self, content: bytes) -> bool:
        try:
            descriptor = os.open(self._path, os.O_WRONLY)
            try:
                os.pwrite(descriptor, content, 0)
                os.ftruncate(descriptor, len(content))
            finally:
                os.close(descriptor)
        except OSError:
            return False
        return True
