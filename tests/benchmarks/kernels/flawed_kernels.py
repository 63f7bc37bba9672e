"""Small kernels with one flaw each, and some without: a script for test_machine_code.py, since Triton's interpreter
must be off. Prints one JSON object for each: name, architecture, report, violations."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"  # before Triton is imported

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from benchmarks.kernels.expectations import Expectation
from benchmarks.kernels.machine_code import inspect, violations
from benchmarks.kernels.recording import Variant


@triton.jit
def scale_rows(input_ptr, output_ptr, row_stride, factor, num_columns, COLUMNS: tl.constexpr):
    """Grid (rows). output = input * factor, row by row, with loads that should be 128 bits wide."""
    columns = tl.arange(0, COLUMNS)
    is_inside = columns < num_columns
    place = tl.program_id(0).to(tl.int64) * row_stride + columns
    values = tl.load(input_ptr + place, mask=is_inside, other=0.0).to(tl.float32) * factor
    tl.store(output_ptr + place, values.to(output_ptr.dtype.element_ty), mask=is_inside)


@triton.jit
def double(input_ptr, output_ptr, WAITS: tl.constexpr):
    """Grid (1). A kernel that is launched beside the one before it. WAITS: not at all, first, late, or twice."""
    places = tl.arange(0, 1024)
    if WAITS == "late":
        values = tl.load(input_ptr + places)
    if WAITS != "never":
        gdc_wait()
        gdc_launch_dependents()
    if WAITS != "late":
        values = tl.load(input_ptr + places)
    if WAITS == "twice":
        gdc_wait()
    tl.store(output_ptr + places, values * 2)


@triton.jit
def multiply(a_ptr, b_ptr, output_ptr, num_steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """One program. output [M, N] = sum over steps of a [M, K] times b [K, N], in a loop that should be pipelined."""
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in range(num_steps):
        a = tl.load(a_ptr + (step * M + rows[:, None]) * K + inner[None, :])
        b = tl.load(b_ptr + (step * K + inner[:, None]) * N + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(output_ptr + rows[:, None] * N + columns[None, :], total)


@dataclass(frozen=True)
class Case:
    name: str
    function: Any
    types: dict[str, str]
    constants: dict[str, Any]
    aligned: tuple[str, ...]
    architectures: tuple[int, ...] = (90,)
    options: dict[str, Any] = field(default_factory=lambda: {"num_warps": 4, "num_stages": 1})
    expectation: Expectation = field(default_factory=Expectation)

    def variant(self, architecture: int) -> Variant:
        names = self.function.arg_names
        return Variant(
            kernel=f"{__name__}:{self.function.__name__}",
            signature={name: self.types.get(name, "constexpr") for name in names},
            constants={(names.index(name),): value for name, value in self.constants.items()},
            attributes={(names.index(name),): [["tt.divisibility", 16]] for name in self.aligned},
            options=self.options,
            architecture=architecture,
        )


def cases() -> Iterator[Case]:
    """Those without a flaw first."""
    pointers = {"input_ptr": "*bf16", "output_ptr": "*bf16"}
    numbers = {"row_stride": "i64", "factor": "fp32", "num_columns": "i32"}
    aligned = (*pointers, "row_stride", "num_columns")
    plain = Case("without a flaw", scale_rows, pointers | numbers, {"COLUMNS": 2048}, aligned, (80, 90))
    types = {"a_ptr": "*bf16", "b_ptr": "*bf16", "output_ptr": "*fp32", "num_steps": "i32"}
    sizes, product_of = {"M": 64, "N": 64, "K": 64}, ("a_ptr", "b_ptr", "output_ptr")
    stages = {"num_warps": 4, "num_stages": 3}
    pipelined = Expectation(has_async_copies=True, has_wgmma=True)
    product = Case("pipelined product", multiply, types, sizes, product_of, (80, 90), stages, pipelined)
    both = dict.fromkeys(("input_ptr", "output_ptr"), "*fp32")
    early = {"num_warps": 4, "num_stages": 1, "launch_pdl": True}
    waiting = Case("waits first", double, both, {"WAITS": "first"}, tuple(both), options=early)
    yield from (plain, product, waiting)
    yield replace(waiting, name="does not wait", constants={"WAITS": "never"})
    yield replace(waiting, name="waits too late", constants={"WAITS": "late"})
    yield replace(waiting, name="waits twice", constants={"WAITS": "twice"})
    yield replace(waiting, name="waits for nothing", options={**early, "launch_pdl": False})
    yield replace(plain, name="unknown alignment", aligned=("output_ptr",), architectures=(90,))
    yield replace(plain, name="too many registers", expectation=Expectation(max_registers=8), architectures=(90,))
    large = {"M": 128, "N": 256, "K": 32}
    yield replace(product, name="spills", constants=large, options={**stages, "num_warps": 1}, architectures=(80,))
    yield replace(product, name="too much shared memory", options={**stages, "num_stages": 9}, architectures=(89,))
    yield replace(product, name="not pipelined", options={**stages, "num_stages": 1}, architectures=(80,))
    yield replace(product, name="too few rows for wgmma", constants={**sizes, "M": 16}, architectures=(90,))
    yield replace(product, name="does not compile", constants={**sizes, "M": 48}, architectures=(90,))


def main() -> None:
    for case in cases():
        for architecture in case.architectures:
            found: dict[str, Any] = {"name": case.name, "architecture": architecture}
            try:
                report = inspect(case.variant(architecture))
                found |= {"report": asdict(report)}
                found |= {"violations": violations(report, case.expectation, architecture)}
            except Exception as error:  # the compiler's errors have no base class
                found |= {"violations": [f"{type(error).__name__}: {error}"]}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
