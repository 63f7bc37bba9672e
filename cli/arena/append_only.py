"""The append-only files of the embedded store: finds damage, and keeps what can be read of them.

A store that was killed leaves an unfinished command at the end of its last file; the server drops it at its start. Any
other damage makes the server refuse to start, or start without saying what is missing. A repair keeps the files up to
the damage, so that the store is as it was at some moment; nothing after the damage is read, because a text of a visitor
could look like a command. No server may run while these functions work on a folder.
"""

import mmap
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from cli.arena.embedded_redis import StoreBinary
from cli.arena.store_server import FOLDER, copy_of, loads

MANIFEST = "appendonly.aof.manifest"

_MANIFEST_LINE = re.compile(r"file (\S+) seq \d+ type ([bhi])( .*)?")


@dataclass(frozen=True)
class Damage:
    """What is wrong. `keep_bytes`: how much of `file` is whole; None if nothing of the store can be kept."""

    file: str
    reason: str
    keep_bytes: int | None

    def __str__(self) -> str:
        at = f" at byte {self.keep_bytes:,}" if self.keep_bytes is not None else ""
        return f"{self.file} is damaged{at}: {self.reason}"


@dataclass(frozen=True)
class Scan:
    """A file of commands. Up to `num_whole_bytes` all commands and transactions are complete; `problem` says what
    follows, None if nothing does; `is_torn`: it is only the unfinished beginning of a command."""

    num_whole_bytes: int
    problem: str | None = None
    is_torn: bool = False


def find_damage(store: Path) -> Damage | None:
    """Damage that can be seen without a server; None if there is none. `store` is the folder of the store. Raises
    OSError."""
    folder = store / FOLDER
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    files = _manifest(folder)
    if files is None:
        return Damage(MANIFEST, "it is not as the store wrote it, or missing", None)
    for number, (name, kind) in enumerate(files):
        path = folder / name
        if not path.is_file():
            return Damage(name, "it is missing", 0 if kind == "i" else None)
        if name.endswith(".rdb"):
            continue  # it has a checksum of its own, which the server checks
        scan = scan_commands(path)
        is_last = number == len(files) - 1
        if scan.problem is not None and not (scan.is_torn and is_last):
            return Damage(name, scan.problem, scan.num_whole_bytes)
    return None


def torn_bytes(store: Path) -> int:
    """Length of the unfinished command at the end of the last file, which the server drops at its start."""
    files = _manifest(store / FOLDER) or []
    if not files or files[-1][1] != "i":
        return 0
    path = store / FOLDER / files[-1][0]
    return path.stat().st_size - scan_commands(path).num_whole_bytes


def repair(store: Path, damage: Damage, binary: StoreBinary, set_aside: Path) -> str:
    """Keep what is whole, after a copy of everything to `set_aside`. Returns what was done. Raises OSError."""
    aside = copy_of(store, set_aside)
    if damage.keep_bytes is not None:
        _cut(store / FOLDER, damage)
        if loads(store, binary):
            return f"{damage}; what lies before it is kept, all of it was copied to {aside}"
    shutil.rmtree(store / FOLDER)
    return f"{damage}; the store begins anew, what it had was copied to {aside}"


def scan_commands(path: Path) -> Scan:
    """Read commands as the server does: `*COUNT`, then `$LENGTH` and a text for each word."""
    if path.stat().st_size == 0:
        return Scan(0)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _scan(data)


def _scan(data: mmap.mmap) -> Scan:
    size, at, whole, in_transaction = len(data), 0, 0, False
    while at < size:
        if data[at] == ord("#"):  # a time stamp
            at = data.find(b"\n", at) + 1
            if at == 0:
                return Scan(whole, "it ends within a command", is_torn=True)
            continue
        num_words, at = _number(data, at, b"*")
        first = b""
        for index in range(num_words):
            length, at = _number(data, at, b"$")
            if length < 0:
                num_words = length
                break
            end = at + length
            if end + 2 > size:
                return Scan(whole, "it ends within a command", is_torn=True)
            if data[end : end + 2] != b"\r\n":
                num_words = _MALFORMED
                break
            if index == 0:
                first = data[at:end].upper()
            at = end + 2
        if num_words == _UNFINISHED:
            return Scan(whole, "it ends within a command", is_torn=True)
        if num_words <= 0:
            return Scan(whole, "what follows is no command")
        in_transaction = first == b"MULTI" or (in_transaction and first != b"EXEC")
        if not in_transaction:
            whole = at
    return Scan(whole, "it ends within a transaction", is_torn=True) if in_transaction else Scan(whole)


_MALFORMED, _UNFINISHED = -1, -2


def _number(data: mmap.mmap, at: int, mark: bytes) -> tuple[int, int]:
    """The number of a line `MARK NUMBER`, and the position after the line."""
    if at >= len(data):
        return _UNFINISHED, at
    end = data.find(b"\r\n", at, at + 16)
    if end < 0:
        is_unfinished = len(data) - at < 16 and re.fullmatch(re.escape(mark) + rb"\d*\r?", data[at:]) is not None
        return (_UNFINISHED if is_unfinished else _MALFORMED), at
    line = data[at:end]
    if line[:1] != mark or not line[1:].isdigit():
        return _MALFORMED, at
    return int(line[1:]), end + 2


def _manifest(folder: Path) -> list[tuple[str, str]] | None:
    """Names and types of the files in use, in the order in which they are loaded; None without a readable manifest."""
    try:
        text = (folder / MANIFEST).read_text(encoding="ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    found = [_MANIFEST_LINE.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
    if not found or not text.endswith("\n") or any(match is None or "/" in match[1] for match in found):
        return None
    return [(match[1], match[2]) for match in found if match is not None and match[2] != "h"]


def _cut(folder: Path, damage: Damage) -> None:
    """Cut the damaged file off where it is damaged, and take the later ones off the manifest."""
    assert damage.keep_bytes is not None
    path = folder / damage.file
    path.touch()
    os.truncate(path, damage.keep_bytes)
    manifest = folder / MANIFEST
    kept: list[str] = []
    for line in manifest.read_text(encoding="ascii").splitlines(keepends=True):
        kept.append(line)
        if line.split()[1] == damage.file:
            break
    partial = manifest.with_suffix(".part")
    partial.write_text("".join(kept), encoding="ascii")
    partial.replace(manifest)
