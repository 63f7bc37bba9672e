"""Builds the C++ operators once for this machine: one shared library, cached by sources, compiler and instruction set.

The sources need only a C++17 compiler. Without torch headers a build takes half the time and serves every torch
release. Built by `make up` or at the start of an engine, never while requests are served.
"""

import fcntl
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.errors import OperatorsUnavailable
from engine.processor import cpu_flags

_log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent
_COMMON_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-w",  # GCC 12 warns about its own headers
)
#: By instruction set, best first: compiler flags, and the processor flags that it needs.
INSTRUCTION_SETS: Mapping[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "avx512-bf16": (
        ("-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni", "-mprefer-vector-width=512"),
        frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "avx512_bf16", "avx512_vnni"}),
    ),
    "avx512": (
        ("-march=x86-64-v4", "-mprefer-vector-width=512"),
        frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"}),
    ),
    "avx2": (("-march=x86-64-v3",), frozenset({"avx2", "fma", "f16c", "bmi2"})),
    "portable": ((), frozenset()),
}
_X86 = ("x86_64", "AMD64")
_BUILD_TIMEOUT_S = 300


def instruction_sets() -> tuple[str, ...]:
    """The instruction sets that a compiler for this kind of processor supports, best first."""
    return tuple(INSTRUCTION_SETS) if platform.machine() in _X86 else ("portable",)


def best_instruction_set() -> str:
    """The best instruction set that this processor has."""
    return usable_instruction_sets()[0]


def usable_instruction_sets() -> tuple[str, ...]:
    """The instruction sets that this processor has, best first."""
    flags = cpu_flags() if platform.machine() in _X86 else frozenset()
    return tuple(name for name, (_, needed) in INSTRUCTION_SETS.items() if needed <= flags)


def build(instruction_set: str, extra_flags: tuple[str, ...] = ()) -> Path:
    """Path of the library for that instruction set, from the cache or built now (about 35 s of one core).

    Raises OperatorsUnavailable if there is no compiler or it fails. Processes that call this at once wait for one
    build.
    """
    target = library_path(instruction_set, extra_flags)
    if target.is_file():
        return target
    compiler = find_compiler()
    if compiler is None:
        raise OperatorsUnavailable("no C++ compiler found (g++ or clang++)")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_file():
                _build(compiler, _flags(instruction_set, extra_flags), target)
    except OSError as error:
        raise OperatorsUnavailable(f"cannot build {target}: {error}") from error
    return target


def library_path(instruction_set: str, extra_flags: tuple[str, ...] = ()) -> Path:
    """Path of the library of these sources, whether or not it is built. The compiler is not part of the name, so that a
    library built elsewhere (in a container image) serves on machines without a compiler."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {_flags(instruction_set, extra_flags)}".encode())
    for file in sorted((*_FOLDER.glob("*.cpp"), *_FOLDER.glob("*.h"))):
        digest.update(file.name.encode() + file.read_bytes())
    return cache_folder() / f"operators-{instruction_set}-{digest.hexdigest()[:16]}.so"


def cache_folder() -> Path:
    """$AGON_CACHE_DIR, else the user's cache folder."""
    own = os.environ.get("AGON_CACHE_DIR")
    if own:
        return Path(own).expanduser() / "operators"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "agon" / "operators"


def find_compiler() -> str | None:
    """Path of the C++ compiler: $CXX, or the first of the usual names that is installed. None: there is none."""
    names = filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++"))
    return next(filter(None, map(shutil.which, names)), None)


def _build(compiler: str, flags: tuple[str, ...], target: Path) -> None:
    started = time.perf_counter()
    _log.info("building the C++ operators into %s; this happens once", target)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [Path(folder, f"{source.stem}.o") for source in sorted(_FOLDER.glob("*.cpp"))]
        sources = (_FOLDER / f"{object_file.stem}.cpp" for object_file in objects)
        commands = [
            [compiler, *flags, "-c", str(source), "-o", str(object_file)]
            for source, object_file in zip(sources, objects, strict=True)
        ]
        list(pool.map(_run, commands))
        # Linked without an OpenMP library, so that the one that torch has loaded is used.
        library = Path(folder, "operators.so")
        _run([compiler, *_sanitizers(flags), "-shared", *map(str, objects), "-o", str(library)])
        library.replace(target)
    _log.info("built the C++ operators in %.1f s", time.perf_counter() - started)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise OperatorsUnavailable(f"{command[0]} took longer than {_BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
        raise OperatorsUnavailable(f"{command[0]} could not build the C++ operators: {first}")


def _flags(instruction_set: str, extra_flags: tuple[str, ...]) -> tuple[str, ...]:
    # Threads come from OpenMP. Apple's compiler has no OpenMP, so there the operators run on one thread.
    openmp = () if platform.system() == "Darwin" else ("-fopenmp",)
    return (*_COMMON_FLAGS, *INSTRUCTION_SETS[instruction_set][0], *openmp, *extra_flags)


def _sanitizers(flags: tuple[str, ...]) -> list[str]:
    return [flag for flag in flags if flag.startswith("-fsanitize")]
