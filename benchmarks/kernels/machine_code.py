"""Compiles what served models launch, without a GPU, and reads the machine code: registers, stack, loads, fences.

python -m benchmarks.kernels.machine_code [--architecture N] [--kernel TEXT] [--model NAME ...] [--record FILE]
prints one JSON object per variant; the exit status is 1 if an expectation is violated. FILE of --record: what
`make kernel-report` or `make kernel-record` has checked; of that only one variant of each kernel is compiled again.
Triton's interpreter must be off.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from inspect import getsource
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import triton
from triton.compiler import CompiledKernel

from benchmarks.kernels.expectations import Expectation, expectation_of
from benchmarks.kernels.recording import DEVICES, Variant
from benchmarks.kernels.served_launches import Recording, record
from benchmarks.kernels.served_models import SERVED

#: Shared memory that one program may use, in bytes, by architecture.
SHARED_LIMITS: Mapping[int, int] = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}

_CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
_PRODUCTS = ("HGMMA", "QGMMA", "IGMMA", "HMMA", "IMMA", "DMMA")
#: Loads, stores, copies and atomic operations on global memory, and the end of a program: not before the wait.
_ACCESS = re.compile(r"(LDG|STG|LDGSTS|ATOM|ATOMG|RED|REDG|UTMA\w*|UBLKCP|LD|ST|EXIT)(\.|$)")
_WAIT, _LET_NEXT_IN = "ACQBULK", "PREEXIT"


@dataclass(frozen=True, slots=True)
class Report:
    """The machine code of one variant. Counts are static: instructions in the code, not executed ones."""

    registers: int
    stack_bytes: int  #: of one thread; holds spilled registers
    shared_bytes: int
    num_spill_instructions: int  #: loads and stores of local memory
    loads: Mapping[str, int]  #: width in bits -> global loads
    copies: Mapping[str, int]  #: width in bits -> asynchronous copies into shared memory
    products: Mapping[str, int]  #: tensor core instruction -> count
    is_early: bool  #: may be launched while the kernel before it runs
    num_waits: int  #: for the kernel before it
    num_before_wait: int  #: accesses to global memory and ends of a program; all, where there is no wait
    lets_next_in: bool  #: lets the next kernel be placed, behind the wait

    @property
    def num_wide(self) -> int:
        """Global loads and asynchronous copies of 128 bits."""
        return self.loads.get("128", 0) + self.copies.get("128", 0)


def inspect(variant: Variant) -> Report:
    """Compile a variant and read its machine code with cuobjdump. Raises the compiler's own errors."""
    compiled = variant.compile()
    usage, code = (_cuobjdump(option, compiled) for option in ("-res-usage", "-sass"))
    in_order = _INSTRUCTION.findall(code)
    opcodes = Counter(in_order)
    waits = [place for place, opcode in enumerate(in_order) if opcode.startswith(_WAIT)]
    before = in_order[: waits[0]] if waits else in_order
    return Report(
        registers=_usage(usage, "REG"),
        stack_bytes=_usage(usage, "STACK"),
        shared_bytes=compiled.metadata.shared,
        num_spill_instructions=sum(n for opcode, n in opcodes.items() if opcode.startswith(("LDL", "STL"))),
        loads=_widths(opcodes, "LDG"),
        copies=_widths(opcodes, "LDGSTS"),
        products=_first_words(opcodes, _PRODUCTS),
        is_early=bool(variant.options.get("launch_pdl")),
        num_waits=len(waits),
        num_before_wait=sum(1 for opcode in before if _ACCESS.match(opcode)),
        lets_next_in=any(opcode.startswith(_LET_NEXT_IN) for opcode in in_order[len(before) :]),
    )


def stack_bytes(compiled: CompiledKernel) -> int:
    """As Report, from a kernel that is compiled already."""
    return _usage(_cuobjdump("-res-usage", compiled), "STACK")


def violations(report: Report, expected: Expectation, architecture: int) -> list[str]:
    """The unmet expectations, one sentence each; empty if all are met."""
    found = []
    if report.stack_bytes or report.num_spill_instructions:
        found.append(f"{report.stack_bytes} bytes of stack, {report.num_spill_instructions} loads and stores of it")
    if report.registers > expected.max_registers:
        found.append(f"{report.registers} registers, at most {expected.max_registers} expected")
    if report.shared_bytes > SHARED_LIMITS[architecture]:
        found.append(f"{report.shared_bytes} bytes of shared memory, of {SHARED_LIMITS[architecture]} there are")
    if expected.has_wide_loads:
        if not report.num_wide:
            found.append(f"no global load of 128 bits: loads {dict(report.loads)}, copies {dict(report.copies)}")
        if report.loads.get("16", 0):
            found.append(f"{report.loads['16']} global loads of 16 bits")
    if expected.has_async_copies and not report.copies:
        found.append("no asynchronous copies: the loop is not pipelined")
    if expected.has_wgmma and architecture == 90 and not report.products.get("HGMMA"):
        found.append(f"no warp group products: {dict(report.products)}")
    return [*found, *_fences(report)]


def _fences(report: Report) -> Iterator[str]:
    """Of a kernel that may be launched while the one before it runs: one wait, before it touches memory."""
    if not report.is_early:
        if report.num_waits:
            yield f"{report.num_waits} waits for the kernel before it, which it is not launched beside"
        return
    if report.num_waits != 1:
        yield f"waits {report.num_waits} times for the kernel before it"
    if report.num_before_wait:
        yield f"{report.num_before_wait} accesses to memory or ends before the wait for the kernel before it"
    if not report.lets_next_in:
        yield "does not let the next kernel in behind the wait"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A variant's report and its violations, or the compiler's error message as the only violation."""

    name: str
    digest: str
    architecture: int
    report: Report | None
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compilation:
    """A variant that some served model launches."""

    variant: Variant
    model: str  #: the first that launches it

    @property
    def kernel(self) -> str:
        """ "module.function" in engine/kernels/gpu."""
        return self.variant.kernel.rpartition(".")[2].replace(":", ".")

    @property
    def arguments(self) -> dict[str, Any]:
        """Types and values of constants; "ALIGNED": the arguments that 16 divides."""
        names = self.variant.function.arg_names
        aligned = frozenset(names[place[0]] for place, found in self.variant.attributes.items() if found)
        return {**self.variant.signature, **self.variant.named_constants(), "ALIGNED": aligned}

    @property
    def name(self) -> str:
        """For reports: "spans._scan_spans of Qwen3-0.6B, SPAN 64"; those of another alignment have the same name."""
        constants = self.variant.named_constants().items()
        shown = [f"{name} {value}" for name, value in constants if name.isupper() and value not in (False, None)]
        return f"{self.kernel} of {self.model}, {', '.join(shown)}"

    def digest(self) -> str:
        """Of the machine code, and of how it is judged."""
        expected = expectation_of(self.variant.kernel, self.arguments)
        return hashlib.sha256(f"{self.variant.digest()} {expected} {_rules()}".encode()).hexdigest()[:32]

    def outcome(self) -> Outcome:
        """Compile and judge it. A compiler error is an outcome, not an exception."""
        architecture = self.variant.architecture
        try:
            report = inspect(self.variant)
        except Exception as error:  # the compiler's errors have no base class; one failure must not end the run
            return Outcome(self.name, self.digest(), architecture, None, (f"{type(error).__name__}: {error}",))
        found = violations(report, expectation_of(self.variant.kernel, self.arguments), architecture)
        return Outcome(self.name, self.digest(), architecture, report, tuple(found))


@functools.cache
def _rules() -> str:
    """Digest of how machine code is read and judged."""
    code = "".join(map(getsource, (Report, inspect, violations, _fences)))
    return hashlib.sha256(f"{code} {SHARED_LIMITS} {_INSTRUCTION} {_ACCESS}".encode()).hexdigest()


def recordings(architecture: int, models: Collection[str] = SERVED) -> list[Recording]:
    """What these served models launch on that architecture, from as many processes as there are cores."""
    names = [name for name in models if SERVED[name].least_architecture <= architecture]
    with _pool() as pool:
        return list(pool.map(record, names, [architecture] * len(names)))


def compilations_of(recorded: Iterable[Recording]) -> list[Compilation]:
    """All distinct variants, in the order of the models."""
    found: dict[str, Compilation] = {}
    for each in recorded:
        for variant in each.variants:
            found.setdefault(variant.digest(), Compilation(variant, each.name))
    return list(found.values())


def to_compile(compilations: Sequence[Compilation], recorded: Collection[str]) -> list[Compilation]:
    """Those whose digests are not recorded, and the first one of each kernel."""
    seen: set[str] = set()
    found = []
    for compilation in compilations:
        if compilation.kernel not in seen or compilation.digest() not in recorded:
            found.append(compilation)
        seen.add(compilation.kernel)
    return found


def compile_all(compilations: Sequence[Compilation]) -> Iterator[Outcome]:
    """The outcomes in that order, from as many processes as there are cores."""
    with _pool() as pool:
        yield from pool.map(Compilation.outcome, compilations)


def read_record(file: Path) -> dict[int, set[str]]:
    """The digests in a record, by the architecture on which they were checked. file: digest -> name, architectures."""
    checked: dict[int, set[str]] = {}
    for found, entry in json.loads(file.read_text(encoding="utf-8")).items():
        for architecture in entry["architectures"]:
            checked.setdefault(architecture, set()).add(found)
    return checked


def _pool() -> ProcessPoolExecutor:
    # Spawned, not forked: this process may have started threads.
    return ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))


def _cuobjdump(option: str, compiled: CompiledKernel) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as binary:
        binary.write(compiled.asm["cubin"])
        binary.flush()
        command = [str(_CUOBJDUMP), option, binary.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


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
    parser.add_argument("--architecture", type=int, default=90, choices=DEVICES)
    parser.add_argument("--kernel", default="", help="only kernels whose name holds this text")
    parser.add_argument("--model", action="append", choices=SERVED, help="only what these launch; default: all")
    parser.add_argument("--record", type=Path, help="variants that were checked before, by digest")
    chosen = parser.parse_args(arguments)
    checked = read_record(chosen.record).get(chosen.architecture, set()) if chosen.record else set()
    recorded = recordings(chosen.architecture, chosen.model or SERVED)
    served = [each for each in compilations_of(recorded) if chosen.kernel in each.kernel]
    is_fine = True
    for outcome in compile_all(to_compile(served, checked)):
        is_fine = is_fine and not outcome.violations
        print(json.dumps(asdict(outcome)), flush=True)
    sys.exit(not is_fine)


if __name__ == "__main__":
    main()
