"""Checks the machine code of the shipped kernel configurations without a GPU: compile, disassemble, compare.

python -m engine.kernels.gpu.ahead_of_time [--architecture N ...] [--name TEXT] [--record FILE] [MODULE ...] prints one
JSON object per configuration and architecture; the exit status is 1 if any expectation is violated. MODULE: a module
with a function `shipped()`; the default is every such file of this package. FILE: the record of configurations that
`make kernel-report` or `make kernel-record` has checked; of those only one of each kernel is compiled. Never imported
while serving; does not work under TRITON_INTERPRET.
"""

import argparse
import functools
import hashlib
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.kernels import gpu
from engine.kernels.gpu.compilation import ARCHITECTURES, Compilation
from engine.kernels.gpu.dependent_launch import options_for

#: Shared memory that one program may use, in bytes, by architecture.
SHARED_LIMITS: Mapping[int, int] = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}

_CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
_PRODUCTS = ("HGMMA", "QGMMA", "IGMMA", "HMMA", "IMMA", "DMMA")


@dataclass(frozen=True, slots=True)
class Report:
    """The machine code of one configuration on one architecture. Counts are static: instructions in the code, not
    executed ones."""

    name: str
    architecture: int
    registers: int
    stack_bytes: int  #: of one thread; holds spilled registers
    shared_bytes: int
    num_spill_instructions: int  #: loads and stores of local memory
    loads: Mapping[str, int]  #: width in bits -> global loads
    copies: Mapping[str, int]  #: width in bits -> asynchronous copies into shared memory
    products: Mapping[str, int]  #: tensor core instruction -> count
    waits: bool  #: the kernel waits for the one before it, if it is launched while that one runs

    @property
    def num_wide(self) -> int:
        """Global loads and asynchronous copies of 128 bits."""
        return self.loads.get("128", 0) + self.copies.get("128", 0)


def compile_for(compilation: Compilation, architecture: int) -> Report:
    """Compile one configuration for one architecture (80, 89, 90) and read its machine code with cuobjdump.

    Raises ValueError if signature and constants do not match the kernel's arguments, and the compiler's own errors.
    """
    names = compilation.kernel.arg_names
    constants = dict(compilation.constants)
    if "WAITS" in names:
        constants["WAITS"] = options_for(architecture)["WAITS"]
    unknown = (set(compilation.signature) | set(constants) | compilation.divisible_by_16) - set(names)
    missing = set(names) - set(compilation.signature) - set(constants)
    if unknown or missing:
        raise ValueError(f"{compilation.name}: unknown arguments {sorted(unknown)}, missing {sorted(missing)}")
    source = ASTSource(
        fn=compilation.kernel,
        signature={n: "constexpr" if n in constants else compilation.signature[n] for n in names},
        constexprs=constants,
        attrs={(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n in compilation.divisible_by_16},
    )
    options = {
        "num_warps": compilation.num_warps,
        "num_stages": compilation.num_stages,
        "maxnreg": compilation.max_registers,
        "enable_fp_fusion": compilation.has_fused_products,
    }
    compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(compiled.asm["cubin"])
        binary.flush()
        usage, code = (_cuobjdump(option, binary.name) for option in ("-res-usage", "-sass"))
    opcodes = Counter(_INSTRUCTION.findall(code))
    return Report(
        name=compilation.name,
        architecture=architecture,
        registers=_usage(usage, "REG"),
        stack_bytes=_usage(usage, "STACK"),
        shared_bytes=compiled.metadata.shared,
        num_spill_instructions=sum(n for opcode, n in opcodes.items() if opcode.startswith(("LDL", "STL"))),
        loads=_widths(opcodes, "LDG"),
        copies=_widths(opcodes, "LDGSTS"),
        products=_first_words(opcodes, _PRODUCTS),
        waits=not constants.get("WAITS") or "ACQBULK" in opcodes,
    )


def violations(compilation: Compilation, report: Report) -> list[str]:
    """The unmet expectations, one sentence each; empty if all are met."""
    expected, found = compilation.expectation, []
    if report.stack_bytes or report.num_spill_instructions:
        found.append(f"{report.stack_bytes} bytes of stack, {report.num_spill_instructions} loads and stores of it")
    if report.registers > expected.max_registers:
        found.append(f"{report.registers} registers, at most {expected.max_registers} expected")
    if report.shared_bytes > SHARED_LIMITS[report.architecture]:
        found.append(f"{report.shared_bytes} bytes of shared memory, of {SHARED_LIMITS[report.architecture]} there are")
    if expected.has_wide_loads:
        if not report.num_wide:
            found.append(f"no global load of 128 bits: loads {dict(report.loads)}, copies {dict(report.copies)}")
        if report.loads.get("16", 0):
            found.append(f"{report.loads['16']} global loads of 16 bits")
    if not report.waits:
        found.append("does not wait for the kernel before it")
    if expected.has_async_copies and not report.copies:
        found.append("no asynchronous copies: the loop is not pipelined")
    if expected.has_wgmma and report.architecture == 90 and not report.products.get("HGMMA"):
        found.append(f"no warp group products: {dict(report.products)}")
    return found


@functools.cache
def _rules() -> str:
    """Digest of this package's files that say how configurations are compiled and judged, and of Triton's version."""
    files = (Path(gpu.__path__[0], f"{name}.py") for name in ("ahead_of_time", "compilation", "dependent_launch"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files) + triton.__version__.encode()).hexdigest()


def digest(compilation: Compilation) -> str:
    """Equal for two configurations only if machine code and expectations are, on every architecture: the source of the
    kernel and of all it calls, all arguments of the compilation, how it is judged, and Triton's version."""

    def key(value: Any) -> str:
        return str(getattr(value, "cache_key", None) or repr(value))

    parts = (
        _rules(),
        compilation.kernel.cache_key,
        sorted(compilation.signature.items()),
        sorted((name, key(value)) for name, value in compilation.constants.items()),
        sorted(compilation.divisible_by_16),
        (compilation.num_warps, compilation.num_stages, compilation.max_registers, compilation.has_fused_products),
        (compilation.expectation, compilation.architectures),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def to_compile(compilations: Sequence[Compilation], recorded: Collection[str]) -> list[int]:
    """Indices of the configurations whose digests are not recorded, and of the first one of each kernel."""
    seen: set[str] = set()
    found = []
    for index, compilation in enumerate(compilations):
        kernel = compilation.kernel.cache_key
        if kernel not in seen or digest(compilation) not in recorded:
            found.append(index)
        seen.add(kernel)
    return found


def read_record(file: Path) -> dict[int, set[str]]:
    """The digests in a record, by the architecture on which they were checked. file: digest -> name, architectures."""
    checked: dict[int, set[str]] = {}
    for found, entry in json.loads(file.read_text(encoding="utf-8")).items():
        for architecture in entry["architectures"]:
            checked.setdefault(architecture, set()).add(found)
    return checked


def kernel_modules() -> list[str]:
    """Names of this package's modules that have a function `shipped()`."""
    names = (f"{gpu.__name__}.{module.name}" for module in pkgutil.iter_modules(gpu.__path__))
    return [name for name in names if name != __spec__.name and hasattr(importlib.import_module(name), "shipped")]


def shipped(modules: Iterable[str] | None = None) -> list[Compilation]:
    """The configurations of the modules (default: kernel_modules()). Raises ValueError if two have the same name."""
    found = kernel_modules() if modules is None else modules
    compilations = [c for name in found for c in importlib.import_module(name).shipped()]
    repeated = [name for name, count in Counter(c.name for c in compilations).items() if count > 1]
    if repeated:
        raise ValueError(f"configurations of the same name: {repeated}")
    return compilations


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of compile_all for one configuration: a report and its violations, or the compiler's error message as
    the only violation."""

    name: str
    architecture: int
    report: Report | None
    violations: tuple[str, ...]


def compile_all(
    modules: Sequence[str] | None = None,
    architectures: Sequence[int] = ARCHITECTURES,
    *,
    name_contains: str = "",
    recorded: Mapping[int, Collection[str]] | None = None,
    num_processes: int | None = None,
) -> Iterator[Outcome]:
    """Compile every configuration for every architecture that it is shipped for, and yield the outcomes in that order.

    recorded: by architecture, digests of configurations that need not be compiled again, see to_compile. Runs
    num_processes at a time (default: one per core). A compiler error is an outcome, not an exception.
    """
    names = tuple(kernel_modules() if modules is None else modules)
    compilations = shipped(names)
    wanted = {each: set(to_compile(compilations, (recorded or {}).get(each, ()))) for each in architectures}
    jobs = [
        (names, index, architecture)
        for index, compilation in enumerate(compilations)
        if name_contains in compilation.name
        for architecture in architectures
        if architecture in compilation.architectures and index in wanted[architecture]
    ]
    # Spawned, not forked: this process may have started threads.
    with ProcessPoolExecutor(num_processes or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield from pool.map(_outcome, jobs)


@functools.cache
def _shipped(modules: tuple[str, ...]) -> list[Compilation]:
    return shipped(modules)


def _outcome(job: tuple[tuple[str, ...], int, int]) -> Outcome:
    modules, index, architecture = job
    compilation = _shipped(modules)[index]
    try:
        report = compile_for(compilation, architecture)
    except Exception as error:  # the compiler's errors have no base class; one failure must not end the run
        return Outcome(compilation.name, architecture, None, (f"{type(error).__name__}: {error}",))
    return Outcome(compilation.name, architecture, report, tuple(violations(compilation, report)))


def _cuobjdump(option: str, path: str) -> str:
    return subprocess.run([str(_CUOBJDUMP), option, path], check=True, capture_output=True, text=True).stdout


def _usage(text: str, what: str) -> int:
    found = re.search(rf"\b{what}:(\d+)", text)
    assert found is not None, text
    return int(found[1])


def _widths(opcodes: Mapping[str, int], instruction: str) -> dict[str, int]:
    widths: Counter[str] = Counter()
    for opcode, count in opcodes.items():
        first, *modifiers = opcode.split(".")
        if first == instruction:
            width = next((m.lstrip("US") for m in modifiers if re.fullmatch(r"[US]?(8|16|64|128)", m)), "32")
            widths[width] += count
    return dict(sorted(widths.items(), key=lambda item: int(item[0])))


def _first_words(opcodes: Mapping[str, int], words: Iterable[str]) -> dict[str, int]:
    counts = {word: sum(n for opcode, n in opcodes.items() if opcode.split(".")[0] == word) for word in words}
    return {word: count for word, count in counts.items() if count}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; always exits: status 0 if no outcome has violations, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--architecture", type=int, action="append", choices=ARCHITECTURES)
    parser.add_argument("--name", default="", help="only configurations whose name holds this text")
    parser.add_argument("--record", type=Path, help="configurations that were checked before, by digest")
    chosen = parser.parse_args(arguments)
    is_fine = True
    architectures = chosen.architecture or ARCHITECTURES
    recorded = read_record(chosen.record) if chosen.record else {}
    for outcome in compile_all(chosen.modules or None, architectures, name_contains=chosen.name, recorded=recorded):
        is_fine = is_fine and not outcome.violations
        print(json.dumps(asdict(outcome)), flush=True)
    sys.exit(not is_fine)


if __name__ == "__main__":
    main()
