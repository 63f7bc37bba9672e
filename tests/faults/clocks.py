"""Wall clocks of single processes that jump while they run: a small library for LD_PRELOAD, built from clock_shim.c,
and a file for each clock that holds its offset."""

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).parent / "clock_shim.c"
VARIABLE = "AGON_FAULTS_CLOCK"


def find_compiler() -> str | None:
    """A C compiler on PATH; None without one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build_shim(folder: Path) -> Path:
    """Compile the library into `folder`; returns its path."""
    compiler = find_compiler()
    assert compiler is not None, "find_compiler is asked first"
    library = folder / "clock_shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    return library


def clock_file(folder: Path, name: str) -> Path:
    """The file that holds the offset of one process."""
    return folder / f"clock-{name}"


def set_clock(path: Path, seconds: int) -> None:
    """Set the offset; processes that have mapped the file see it at once."""
    if not path.exists():
        path.write_bytes(bytes(8))
    with path.open("r+b", buffering=0) as file:
        file.write(struct.pack("=q", seconds))
