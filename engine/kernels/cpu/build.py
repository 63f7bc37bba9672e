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
import time
from collections.abc import Mapping
from pathlib import Path

from engine.errors import OperatorsUnavailable

_log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent
_COMMON_FLAGS = (
    "-std=c++17",
    "-O3",
    "-shared",
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
_BUILD_TIMEOUT_S = 300


def best_instruction_set() -> str:
    """The widest that this processor has."""
    flags = _cpu_flags()
    return next(name for name, (_, needed) in INSTRUCTION_SETS.items() if needed <= flags)


def build(instruction_set: str, extra_flags: tuple[str, ...] = ()) -> Path:
    """The library for that instruction set, from the cache or built now (about 10 s).

    Raises OperatorsUnavailable where there is no compiler or it fails. Processes that ask at once wait for one build.
    """
    compiler = _compiler()
    march, _ = INSTRUCTION_SETS[instruction_set]
    flags = (*_COMMON_FLAGS, *march, *_openmp(), *extra_flags)
    sources = sorted(_FOLDER.glob("*.cpp"))
    target = cache_folder() / f"operators-{instruction_set}-{_digest(compiler, flags)}.so"
    if target.is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_file():
                _compile([compiler, *flags, *map(str, sources)], target)
    except OSError as error:
        raise OperatorsUnavailable(f"cannot write to {target.parent}: {error}") from error
    return target


def cache_folder() -> Path:
    """$AGON_CACHE_DIR, else the user's cache folder."""
    own = os.environ.get("AGON_CACHE_DIR")
    if own:
        return Path(own).expanduser() / "operators"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "agon" / "operators"


def _compile(command: list[str], target: Path) -> None:
    started = time.perf_counter()
    _log.info("building the C++ operators into %s; this happens once", target)
    unfinished = target.with_suffix(f".{os.getpid()}.part")
    try:
        done = subprocess.run(
            [*command, "-o", str(unfinished)], capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S
        )
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
            raise OperatorsUnavailable(f"{command[0]} could not build the C++ operators: {first}")
        unfinished.replace(target)
    except subprocess.TimeoutExpired as error:
        raise OperatorsUnavailable(f"{command[0]} took longer than {_BUILD_TIMEOUT_S} s") from error
    finally:
        unfinished.unlink(missing_ok=True)
    _log.info("built the C++ operators in %.1f s", time.perf_counter() - started)


def _compiler() -> str:
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")):
        if found := shutil.which(name):
            return found
    raise OperatorsUnavailable("no C++ compiler found (g++ or clang++)")


def _openmp() -> tuple[str, ...]:
    """Threads come from OpenMP; Apple's compiler has none, there the operators run on one."""
    return () if platform.system() == "Darwin" else ("-fopenmp",)


def _digest(compiler: str, flags: tuple[str, ...]) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    digest = hashlib.sha256(f"{version}\n{flags}\n{platform.machine()}\n".encode())
    for file in sorted((*_FOLDER.glob("*.cpp"), *_FOLDER.glob("*.h"))):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _cpu_flags() -> set[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return set()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
