"""Builds the C++ operators once for this machine: one shared library, cached by sources, compiler and instruction set.

The sources need nothing but a C++17 compiler (no torch headers: seconds instead of half a minute, and one build serves
every torch release). Never called while requests are served: `make up` and the start of an engine do it.
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
#: Compiler flags by instruction set, best first, and the processor flags that each needs.
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
    """Those that the compiler of a machine of this kind knows."""
    return tuple(INSTRUCTION_SETS) if platform.machine() in _X86 else ("portable",)


def best_instruction_set() -> str:
    """The widest that this processor has."""
    flags = cpu_flags() if platform.machine() in _X86 else frozenset()
    return next(name for name, (_, needed) in INSTRUCTION_SETS.items() if needed <= flags)


def build(instruction_set: str, extra_flags: tuple[str, ...] = ()) -> Path:
    """The library for that instruction set, from the cache or built now (about 10 s of one core).

    Raises OperatorsUnavailable where there is no compiler or it fails. Processes that ask at once wait for one build.
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
    """Where the library of these sources is, or will be. The compiler is not part of the name, so that a library built
    elsewhere (in an image, say) serves where there is none."""
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
        # Linked without OpenMP's library: the one that torch brings and has loaded is the one to use.
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
    # Threads come from OpenMP; Apple's compiler has none, there the operators run on one.
    openmp = () if platform.system() == "Darwin" else ("-fopenmp",)
    return (*_COMMON_FLAGS, *INSTRUCTION_SETS[instruction_set][0], *openmp, *extra_flags)


def _sanitizers(flags: tuple[str, ...]) -> list[str]:
    return [flag for flag in flags if flag.startswith("-fsanitize")]
