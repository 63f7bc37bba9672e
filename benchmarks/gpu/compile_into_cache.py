"""python -m benchmarks.gpu.compile_into_cache TRITON PYTHON: compiles what the first minutes on a GPU launch into
$TRITON_CACHE_DIR, with keys of the release of Triton in the folder TRITON and launchers for that version of Python.

What the cache has already is not compiled again. Prints JSON: how much there is of it, and how much was there before.
Started by compiled_cache.py.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from triton import knobs
from triton.backends.nvidia import driver as nvidia
from triton.compiler import CompiledKernel
from triton.runtime import cache
from triton.runtime.build import platform_key

from benchmarks.kernels.machine_code import compilations_of, stack_bytes
from benchmarks.kernels.recording import Variant, recording
from benchmarks.kernels.served_launches import Recording, record

ROOT = Path(__file__).parents[2]
#: Models of served_models.SERVED that the first minutes serve, whole or with few layers.
_MODELS = ("Qwen3-0.6B", "Llama-3.1-8B", "Qwen3-0.6B in int4", "Qwen3-0.6B, pages in fp8")
_TESTS = ("tests/engine/kernels/gpu", "-m", "first_minutes")
_ARCHITECTURE = 90
_LAUNCHER, _UTILITIES = "__triton_launcher", "cuda_utils"  #: as Triton calls its modules in C


@dataclass(frozen=True, slots=True)
class Python:
    """The version of Python that modules in C are built for."""

    include: str
    suffix: str  #: of such a module's file


def find_python(version: str) -> Python | None:
    """An interpreter of that version, with its headers; None: there is none here."""
    pyenv = Path.home() / ".pyenv" / "versions"
    for command in (f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python"))):
        code = "import sysconfig as s; print(s.get_paths()['include']); print(s.get_config_var('EXT_SUFFIX'))"
        try:
            said = subprocess.run([command, "-c", code], check=True, capture_output=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        include, suffix = said.splitlines()
        if (Path(include) / "Python.h").is_file():
            return Python(include, suffix)
    return None


def use_keys_of(release: Path) -> None:
    """From now on this process's keys are those of that release's files, which Triton finds from its own module."""
    cache.__file__ = str(release / "triton" / "runtime" / "cache.py")
    cache.triton_key.cache_clear()


def launched_by_tests() -> Recording:
    """What the marked tests launch. They compute nothing here, so most fail behind their first launch."""
    with recording(_ARCHITECTURE) as recorder, open(os.devnull, "w") as nowhere:
        shown, sys.stdout = sys.stdout, nowhere
        try:
            pytest.main([*(str(ROOT / _TESTS[0]), *_TESTS[1:]), "-q", "-p", "no:cacheprovider", "--timeout=60"])
        finally:
            sys.stdout = shown
    return Recording("tests", tuple(recorder.variants.values()), {})


def cpu_seconds() -> float:
    """Of this process and of the compilers that it has started."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@dataclass(frozen=True, slots=True)
class Built:
    """A variant in the cache."""

    was_there: bool
    launcher: str | None  #: key of the module in C that launches it
    launcher_was_there: bool
    cpu_s: float
    stack_bytes: int  #: of one thread


def build(variant: Variant, python: Python | None, stub: Path) -> Built:
    """Compile a variant, and the module in C that launches it. stub: as build_module."""
    began = cpu_seconds()
    hits: list[bool] = []
    knobs.compilation.listener = lambda **facts: hits.append(facts["cache_hit"])
    compiled = variant.compile()
    launcher, was_there = None, False
    if python is not None and hasattr(nvidia, "make_launcher"):  # Triton 3.7 launches all with one module
        launcher, was_there = build_module(_LAUNCHER, _launcher_text(variant, compiled), python, stub)
    cpu_s = cpu_seconds() - began
    return Built(hits[0], launcher, was_there, cpu_s, stack_bytes(compiled))


def _launcher_text(variant: Variant, compiled: CompiledKernel) -> str:
    constants = dict(variant.source.constants)
    text: str = nvidia.make_launcher(
        constants, dict(variant.signature), getattr(compiled.metadata, "tensordesc_meta", None)
    )
    return text


def build_module(name: str, text: str, python: Python, stub: Path) -> tuple[str, bool]:
    """Put a module into the cache as Triton's compile_module_from_src does on the machine. Its key, and whether it was
    there. stub: the folder of a libcuda without functions, which is only linked with."""
    key = hashlib.sha256((text + platform_key()).encode()).hexdigest()
    place = cache.get_cache_manager(key)
    file = f"{name}{python.suffix}"
    if place.get_file(file) is not None:
        return key, True
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, f"{name}.c"), Path(folder, file)
        source.write_text(text)
        command = ["cc", str(source), "-O3", "-s", "-shared", "-fPIC", "-Wno-psabi", "-o", str(built)]
        command += ["-l:libcuda.so.1", f"-L{stub}", f"-I{folder}", f"-I{python.include}"]
        command += [f"-I{include}" for include in nvidia.include_dirs]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        place.put(built.read_bytes(), file, binary=True)
    return key, False


def make_stub(folder: Path) -> None:
    """A libcuda without functions."""
    name = "libcuda.so.1"
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name), "-x", "c", os.devnull]
    subprocess.run(command, check=True)


def main(release: Path, version: str) -> None:
    python = find_python(version)
    if python is None:
        print(f"no headers of Python {version} here: the machine builds its launchers itself", file=sys.stderr)
    pool = partial(ProcessPoolExecutor, os.cpu_count(), mp_context=get_context("spawn"))
    with pool() as processes, tempfile.TemporaryDirectory(prefix="agon-stub-") as stub:
        make_stub(Path(stub))
        futures = [processes.submit(record, name, _ARCHITECTURE) for name in _MODELS]
        futures.append(processes.submit(launched_by_tests))
        compilations = compilations_of(future.result() for future in futures)
    with (
        pool(initializer=use_keys_of, initargs=(release,)) as processes,
        tempfile.TemporaryDirectory(prefix="agon-stub-") as stub,
    ):
        make_stub(Path(stub))
        work = partial(build, python=python, stub=Path(stub))
        results = list(processes.map(work, (each.variant for each in compilations)))
        if python is not None:
            build_module(_UTILITIES, Path(nvidia.dirname, "driver.c").read_text(), python, Path(stub))
    for each, result in zip(compilations, results, strict=True):
        if result.stack_bytes:
            print(f"{result.stack_bytes} bytes of stack: {each.name}", file=sys.stderr)
    launchers = {each.launcher: each.launcher_was_there for each in reversed(results) if each.launcher is not None}
    counts = {
        "variants": len(results),
        "hits": sum(each.was_there for each in results),
        "launchers": len(launchers),
        "launcher_hits": sum(launchers.values()),
        "cpu_s": sum(each.cpu_s for each in results),
    }
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
